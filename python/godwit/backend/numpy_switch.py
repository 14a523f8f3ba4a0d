"""NumPy's matrix products through the chosen BLAS, where its build allows it.

NumPy calls `cblas_sgemm` and `cblas_dgemm`, under the name its build gave them, by slots that the dynamic linker
filled when NumPy was loaded. Those slots are pointed to functions of Godwit, which hand the product on, and pointed
back afterwards. A NumPy that has its BLAS inside (static), or none, has no such slots.

Routed: `a @ b`, `np.dot`, `np.matmul` of matrices. Not routed: products with a vector (gemv, dot), and `a @ a.T`,
for which NumPy calls syrk.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, Optional

from .. import _native

_lock = threading.Lock()
_stack: list[Any] = []
ROUTED = "routed"


def _extension() -> Optional[str]:
    """The file of NumPy's compiled core, if NumPy is imported or can be."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        return None
    for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
        module = sys.modules.get(name)
        path = getattr(module, "__file__", None)
        if path and path.endswith(".so"):
            return path
    return None


def route(blas: Any) -> str:
    """Point NumPy's slots to `blas` (a capsule) and say what became of it."""
    path = _extension()
    with _lock:
        _stack.append(blas)
        if path is None:
            return "not installed"
        n = _native.numpy_route(path, blas)
    return ROUTED if n > 0 else "not routed: this build of NumPy reaches its BLAS by no slots of the dynamic linker"


def unroute() -> None:
    """Back to the one before, or to NumPy's own."""
    with _lock:
        _stack.pop()
        path = _extension()
        if path is not None:
            _native.numpy_route(path, _stack[-1] if _stack else None)
