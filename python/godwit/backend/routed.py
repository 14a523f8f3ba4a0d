"""What `godwit run --blas NAME program.py` runs: the program, with its products routed."""

from __future__ import annotations

import runpy
import sys
from typing import Sequence


def main(arguments: Sequence[str]) -> None:
    name, *program = arguments
    from .switch import use

    with use(name) as blas:
        print(f"godwit: products go through {blas.library.described}, {blas.library.path}; NumPy: {blas.numpy}",
              file=sys.stderr)
        if program[0] == "-m":
            sys.argv = program[1:]
            runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        else:
            import os

            sys.argv = list(program)
            sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
            runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
