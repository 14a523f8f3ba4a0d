"""The collectives on tensors, and their derivatives.

Every rank differentiates its own loss, and the sum over the ranks is what is
differentiated.  So the backward of a collective is a collective too, and it is
written with the functions of this file: it can be differentiated in turn.

A function first makes its call in plain Python.  Only if some rank's input
requires a gradient, the result is given a node of the graph; that is known on
all ranks alike, because each tells the others along with the call.  While
torch.compile looks on, its namesake in compiled.py is called instead.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial, wraps
from typing import Any, Callable, Optional

import torch
from torch import Tensor, empty_like, is_grad_enabled

from .._native import Unsupported
from . import compiled
from .arrays import axis_of, dense, is_numpy, new, on_numpy, target, with_axes, written
from .constants import (ABSTAINS, ALLGATHER, ALLREDUCE, ALLTOALL, BCAST, GATHER, MPI_MAX, MPI_MIN, MPI_PROD, MPI_SUM,
                        NEEDS, OP_NAMES, REDUCE, REDUCE_SCATTER, SCAN, SCATTER)
from .group import Group
from .nodes import Back, attach, join, spoil


is_compiling = compiled.is_compiling


def collective(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of a communicator and a tensor: the tensor may be a NumPy array, or one that is only traced."""
    @wraps(function)
    def call(comm: Group, x: Any, *arguments: int) -> Tensor:
        if is_compiling() or not isinstance(x, Tensor):
            return _call_otherwise(function, comm, x, *arguments)
        return function(comm, x, *arguments)

    return call


def _call_otherwise(function: Callable[..., Tensor], comm: Group, x: Any, *arguments: int) -> Any:
    name = function.__name__
    if is_compiling():
        return getattr(compiled, name)(comm, x, *arguments)
    if name != "scatter":
        return on_numpy(function, comm, x, *arguments, writes=name.endswith("_"))
    comm._open()
    if comm._rank == arguments[-1]:
        return on_numpy(function, comm, x, *arguments)
    with torch.no_grad() if is_numpy(x) else nullcontext():
        part = function(comm, None, *arguments)
    return part.numpy() if is_numpy(x) else part


def _flag(x: Tensor) -> int:
    return (NEEDS if x.requires_grad else 0) if is_grad_enabled() else ABSTAINS


# ---- the same shape on all ranks -------------------------------------------------------------


def allreduce(comm: Group, x: Tensor, op: int = MPI_SUM) -> Tensor:
    # The one that is called most, so some calls are written out: the decorator's, dense(), _flag().
    if is_compiling() or not isinstance(x, Tensor):
        return _call_otherwise(allreduce, comm, x, op)
    raw = x if x.is_contiguous() and not x.is_conj() and not x.is_neg() else dense(x)
    out = empty_like(raw) if raw is x else raw  # a copy can be overwritten
    if not is_grad_enabled():
        comm._open().call(ALLREDUCE, op, 0, ABSTAINS, raw, out)
        return out
    flags = comm._open().call(ALLREDUCE, op, 0, x.requires_grad, raw, out)
    if not flags & NEEDS:
        return out
    if op == MPI_SUM:
        return attach(comm, allreduce, out, flags, x)
    return attach(comm, _back(_allreduce_back, op), out, flags, x, _SAVES.get(op, 0))


def _allreduce_back(op: int, comm: Group, grad: Tensor, x: Tensor, y: Any = None) -> Tensor:
    return allreduce(comm, grad, MPI_SUM) * _share(comm, op, x, y)


@collective
def reduce(comm: Group, x: Tensor, op: int, root: int) -> Tensor:
    """Reduce_, but not in place."""
    raw = dense(x)
    out = empty_like(raw)
    flags = comm._open().call(REDUCE, op, root, _flag(x), raw, out)
    if not (is_grad_enabled() and flags & NEEDS):
        return out
    return attach(comm, _back(_reduce_back, op, root), out, flags, x, int(op != MPI_SUM))


@collective
def reduce_(comm: Group, x: Tensor, op: int, root: int) -> Tensor:
    raw = target(x)
    before = [x]  # what the derivative is about

    def make(shape: Any, dtype: int, flags: int) -> Tensor:
        if flags & NEEDS and op != MPI_SUM and is_grad_enabled():
            before[0] = x.clone()  # the derivative needs the values that are about to go
        return raw

    _, flags = comm._open().exchange(REDUCE, op, root, _flag(x), 0, 0, 0, raw, make)
    result = written(x, raw)
    if is_grad_enabled() and flags & NEEDS:
        result = attach(comm, _back(_reduce_back, op, root), result, flags, before[0], int(op != MPI_SUM))
        spoil(x)
    return result


def _reduce_back(op: int, root: int, comm: Group, grad: Tensor, x: Any = None) -> Tensor:
    total = bcast(comm, grad, root)
    return total if op == MPI_SUM else total * _share(comm, op, x)


@collective
def bcast(comm: Group, x: Tensor, root: int) -> Tensor:
    """Bcast_, but not in place."""
    raw = dense(x)
    out = empty_like(raw)
    flags = comm._open().call(BCAST, 0, root, _flag(x), raw, out)
    if not (is_grad_enabled() and flags & NEEDS):
        return out
    return attach(comm, partial(_bcast_back, root), out, flags, x)


@collective
def bcast_(comm: Group, x: Tensor, root: int) -> Tensor:
    raw = target(x)
    flags = comm._open().call(BCAST, 0, root, _flag(x), raw, raw)
    result = written(x, raw)
    if is_grad_enabled() and flags & NEEDS:
        result = attach(comm, partial(_bcast_back, root), result, flags, x)
        spoil(x)
    return result


def _bcast_back(root: int, comm: Group, grad: Tensor) -> Tensor:
    return reduce(comm, grad, MPI_SUM, root)


@collective
def scan(comm: Group, x: Tensor, op: int, from_last: int = 0) -> Tensor:
    """Scan; with `from_last`, rank r gets what the last rank to rank r have."""
    raw = dense(x)
    out = empty_like(raw)
    native = comm._reversed() if from_last else comm._open()
    flags = native.call(SCAN, op, 0, _flag(x), raw, out)
    if not (is_grad_enabled() and flags & NEEDS):
        return out
    return attach(comm, _back(_scan_back, op, from_last), out, flags, x, int(op != MPI_SUM))


def _scan_back(op: int, from_last: int, comm: Group, grad: Tensor, x: Any = None) -> Tensor:
    if op == MPI_SUM:
        return scan(comm, grad, MPI_SUM, 1 - from_last)
    me = comm._rank
    grads, xs = allgather(comm, _wide(grad)[None], 0), allgather(comm, _wide(x)[None], 0)
    if op == MPI_PROD:
        # Sum over r >= me of grads[r] times all xs up to r but the own: from the last to the own.
        total = grads[-1]
        for r in range(comm._size - 1, me, -1):
            total = grads[r - 1] + xs[r].conj() * total
        result = total * xs[:me].prod(0).conj()
    else:
        result = torch.zeros_like(grads[0])
        for r in range(me, comm._size):
            result = result + grads[r] * _holds(op, xs[:r + 1].detach())[me]
    return result.to(grad.dtype)


# ---- parts along an axis -------------------------------------------------------------------------


@collective
def gather(comm: Group, x: Tensor, axis: int, root: int) -> Tensor:
    x = with_axes(x)
    axis = axis_of(axis, x)
    out, flags = comm._open().exchange(GATHER, 0, root, _flag(x), axis, 0, 0, dense(x), new)
    if not (is_grad_enabled() and flags & NEEDS):
        return out
    return attach(comm, partial(_gather_back, axis, x.shape[axis], root), out, flags, x)


def _gather_back(axis: int, n: int, root: int, comm: Group, grad: Tensor) -> Tensor:
    return scatter(comm, grad, axis, n, root)


@collective
def allgather(comm: Group, x: Tensor, axis: int) -> Tensor:
    x = with_axes(x)
    axis = axis_of(axis, x)
    out, flags = comm._open().exchange(ALLGATHER, 0, 0, _flag(x), axis, 0, 0, dense(x), new)
    if not (is_grad_enabled() and flags & NEEDS):
        return out
    return attach(comm, partial(_allgather_back, axis, x.shape[axis]), out, flags, x)


def _allgather_back(axis: int, n: int, comm: Group, grad: Tensor) -> Tensor:
    return reduce_scatter(comm, grad, MPI_SUM, axis, n)


@collective
def scatter(comm: Group, x: Any, axis: int, n: int, root: int) -> Tensor:
    native = comm._open()
    if axis < 0:
        axis += _axes_at_root(comm, x, root)
    is_root = comm._rank == root
    if is_root:
        x = with_axes(x)
    flag = _flag(x) if isinstance(x, Tensor) else 0 if is_grad_enabled() else ABSTAINS
    out, flags = native.exchange(SCATTER, 0, root, flag, axis, 0, n, dense(x) if is_root else None, new)
    if not (is_grad_enabled() and flags & NEEDS):
        return out
    x = x if isinstance(x, Tensor) else None
    unread = None if is_root or x is None else (x.shape, x.dtype)
    return attach(comm, partial(_scatter_back, axis, root, unread), out, flags, x)


def _axes_at_root(comm: Group, x: Any, root: int) -> int:
    """Only the root knows what counting from the last axis means."""
    number = torch.tensor(max(x.dim(), 1) if comm._rank == root and isinstance(x, Tensor) else 0)
    with torch.no_grad():
        return int(bcast(comm, number, root))


def _scatter_back(axis: int, root: int, unread: Any, comm: Group, grad: Tensor) -> Tensor:
    whole = gather(comm, grad, axis, root)
    if unread is None:
        return whole
    shape, dtype = unread
    return join(torch.zeros(shape, dtype=dtype), [whole])


@collective
def alltoall(comm: Group, x: Tensor, gatheraxis: int, scatteraxis: int, n: int) -> Tensor:
    x = with_axes(x)
    gatheraxis, scatteraxis = axis_of(gatheraxis, x), axis_of(scatteraxis, x)
    if gatheraxis == scatteraxis:
        return _repartition(comm, x, gatheraxis, n)
    out, flags = comm._open().exchange(ALLTOALL, 0, 0, _flag(x), gatheraxis, scatteraxis, n, dense(x), new)
    if not (is_grad_enabled() and flags & NEEDS):
        return out
    back = partial(_alltoall_back, scatteraxis, gatheraxis, x.shape[gatheraxis])
    return attach(comm, back, out, flags, x)


def _alltoall_back(gatheraxis: int, scatteraxis: int, n: int, comm: Group, grad: Tensor) -> Tensor:
    return alltoall(comm, grad, gatheraxis, scatteraxis, n)


def _repartition(comm: Group, x: Tensor, axis: int, n: int) -> Tensor:
    """All tensors in a row along `axis`, cut anew: each rank gets `n` of it."""
    with torch.no_grad():
        lengths = allgather(comm, torch.tensor([[x.shape[axis] if 0 <= axis < x.dim() else 0, n]]), 0)
    ends = lengths.cumsum(0)
    starts = (ends - lengths).tolist()
    ends, me = ends.tolist(), comm._rank
    parts = []
    for root in range(comm._size):
        overlap = min(ends[root][0], ends[me][1]) - max(starts[root][0], starts[me][1])
        parts.append(scatter(comm, x, axis, max(overlap, 0), root))
    filled = [part for part in parts if part.shape[axis] > 0] or parts[:1]
    # An empty part has its node too, which cat's derivative would forget.
    return join(torch.cat(filled, axis), [part for part in parts if part.shape[axis] == 0])


@collective
def reduce_scatter(comm: Group, x: Tensor, op: int, axis: int, n: int) -> Tensor:
    x = with_axes(x)
    axis = axis_of(axis, x)
    out, flags = comm._open().exchange(REDUCE_SCATTER, op, 0, _flag(x), axis, 0, n, dense(x), new)
    if not (is_grad_enabled() and flags & NEEDS):
        return out
    return attach(comm, _back(_reduce_scatter_back, op, axis), out, flags, x, _SAVES.get(op, 0))


def _reduce_scatter_back(op: int, axis: int, comm: Group, grad: Tensor, x: Any = None, y: Any = None) -> Tensor:
    total = allgather(comm, grad, axis)
    if op == MPI_SUM:
        return total
    if y is not None:
        with torch.no_grad():
            y = allgather(comm, y, axis)
    return total * _share(comm, op, x, y)


# ---- derivatives of the operations ------------------------------------------------------------------


# How much a derivative needs to know: nothing; the input; the input and the output.
_SAVES = {MPI_SUM: 0, MPI_PROD: 1, MPI_MAX: 2, MPI_MIN: 2}


def _back(function: Back, op: int, *more: int) -> Back:
    return partial(function, op, *more) if op in _SAVES else partial(_refuse, op)


def _refuse(op: int, *unused: Any) -> None:
    raise Unsupported(f"op: {OP_NAMES[op]} has no derivative; SUM, PROD, MAX and MIN have")


def _wide(x: Tensor) -> Tensor:
    """Half types are combined in float."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _share(comm: Group, op: int, x: Tensor, y: Optional[Tensor] = None) -> Tensor:
    """By how much the combined result `y` of all ranks changes with this rank's `x`."""
    if op == MPI_PROD:
        xs = allgather(comm, _wide(x)[None], 0)
        others = xs[:comm._rank].prod(0) * xs[comm._rank + 1:].prod(0)  # without division, so right with zeros
        return others.conj().to(x.dtype)
    with torch.no_grad():
        holds = (x == (allreduce(comm, x, op) if y is None else y)).to(_wide(x).dtype)
        return (holds / allreduce(comm, holds, MPI_SUM)).to(x.dtype)


def _holds(op: int, xs: Tensor) -> Tensor:
    """For each of the tensors in a row: 1 where it alone is the extremum, less where several share it, else 0."""
    holds = (xs == (xs.amax(0) if op == MPI_MAX else xs.amin(0))).to(xs.dtype)
    return holds / holds.sum(0)
