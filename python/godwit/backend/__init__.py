"""A workbench for CPU backends: which BLAS libraries are here, how fast they are, who calls what.

    import godwit.backend

    for library in godwit.backend.libraries():
        print(library.name, library.version, library.kernel)

    with godwit.backend.use("openblas") as blas:     # or a path to a library
        model(x).sum().backward()                    # products and convolutions go through it
    print(blas.calls)

The commands are `godwit backend list`, `godwit backend bench`, `godwit backend trace`,
`godwit run --blas NAME program.py` and `godwit profile`.  The guide is docs/backend.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .libraries import Library, find, libraries

if TYPE_CHECKING:
    from .profile import profile as profile
    from .switch import Use as Use, use as use

__all__ = ["Library", "Use", "find", "libraries", "profile", "use"]

_LATER = {"use": "switch", "Use": "switch", "profile": "profile"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'godwit.backend' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f".{_LATER[name]}", __name__), name)
    return value
