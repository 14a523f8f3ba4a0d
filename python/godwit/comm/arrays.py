"""Tensors and NumPy arrays as the native calls want them: dense, row by row, without marks."""

from __future__ import annotations

import sys
from typing import Any, Callable

import torch
from torch import Tensor

from .._native import InvalidType, InvalidValue
from .constants import DTYPES


def dense(x: Tensor) -> Tensor:
    """The entries as they lie in memory if they lie in a row, else a copy."""
    try:
        if x.is_contiguous() and not x.is_conj() and not x.is_neg():
            return x
        return x.detach().resolve_conj().resolve_neg().contiguous()
    except RuntimeError:
        if x.layout is torch.strided:
            raise
        raise InvalidType(f"tensor: its layout is {x.layout}; call .to_dense() first") from None


def new(shape: tuple[int, ...], dtype: int, flags: int) -> Tensor:
    """The output of a native exchange."""
    return torch.empty(shape, dtype=DTYPES[dtype])


def target(x: Tensor) -> Tensor:
    """Where to write what is to be in `x` then: its own memory, if it lies in a row; see `written`."""
    raw = dense(x)
    if raw is not x and torch._debug_has_internal_overlap(x) == 1:
        raise InvalidValue(f"tensor: it is to be written to, but some entries of shape {tuple(x.shape)}, strides "
                           f"{x.stride()} share their memory; pass a copy")
    return raw


if hasattr(torch.autograd.graph, "increment_version"):
    _count_write = torch.autograd.graph.increment_version
else:
    def _count_write(x: Tensor) -> None:
        x.detach().as_strided((0,), (1,)).zero_()


def written(x: Tensor, raw: Tensor) -> Tensor:
    """`x` without its history, after its target was written to; autograd is told."""
    result = x.detach()
    if raw is x:
        _count_write(result)
    else:
        result.copy_(raw)
    return result


def axis_of(axis: int, x: Tensor) -> int:
    return axis + x.dim() if axis < 0 else axis


def with_axes(x: Tensor) -> Tensor:
    """A tensor without axes counts as one of length 1."""
    return x if x.dim() > 0 else x.reshape(1)


# ---- NumPy ------------------------------------------------------------------------------


def is_numpy(array: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(array, (numpy.ndarray, numpy.generic))


def tensor_of(array: Any, name: str = "tensor", writes: bool = False) -> Tensor:
    """A tensor over the memory of a NumPy array, or of a copy if it is only read and PyTorch could not take it."""
    if isinstance(array, Tensor):
        return array
    if not is_numpy(array):
        raise InvalidType(f"{name}: {type(array).__name__!r} object is neither a tensor nor a NumPy array")
    numpy = sys.modules["numpy"]
    if isinstance(array, numpy.generic):
        array = numpy.asarray(array)
    if writes and not array.flags.writeable:
        raise InvalidValue(f"{name}: it is to be written to, but is read-only; pass a copy")
    if not writes and (not array.flags.writeable or min(array.strides, default=0) < 0):
        array = numpy.array(array, order="C")
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        raise InvalidType(f"{name}: {error}") from None


def on_numpy(function: Callable[..., Tensor], comm: Any, array: Any, *arguments: Any, writes: bool = False) -> Any:
    """Call a function of tensors with a NumPy array.  Nothing is recorded for a gradient."""
    with torch.no_grad():
        return function(comm, tensor_of(array, writes=writes), *arguments).numpy()
