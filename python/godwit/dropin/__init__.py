"""The look-alikes: other projects' modules, with their own names, on top of Godwit.

`import godwit.dropin.mpi4torch as mpi4torch` in a program, or none of that:
`godwit run --as mpi4torch program.py` lets the program's own `import mpi4torch`
find the look-alike; there are adapm and lapse too.  Below `as/` each look-alike has a directory of modules with
the names that programs import; those asked for come first on PYTHONPATH, so that
they are found before anything installed, also by the processes a program starts.
"""

from __future__ import annotations

import os
from typing import Iterable

_DIRECTORIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "as")


def names() -> list[str]:
    """What --as can be followed by."""
    return sorted(os.listdir(_DIRECTORIES))


def python_path(chosen: Iterable[str], rest: str = "") -> str:
    """PYTHONPATH with the look-alikes chosen before what was in it."""
    directories = [os.path.join(_DIRECTORIES, name) for name in chosen]
    # No empty part: Python would read it as the current directory.
    return os.pathsep.join(directories + [rest] * bool(rest))
