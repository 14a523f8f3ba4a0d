"""The functions inside torch.compile: operators that its passes leave in their order.

Each has a kernel that makes the call, a fake one that tells the shape, and a
derivative, and is registered as an effect: then no pass drops, merges or moves
it, neither in the forward nor in the backward graph.

A graph is compiled on each rank by itself, so what would depend on others has to
be the same on all of them, and the kernels check that it is:
  - whether a gradient is recorded for a call;
  - lengths along the axis of Gather, Allgather and Alltoall; in Scatter, the
    other ranks pass a tensor with the root's type and other lengths.
A received tensor requires a gradient if its buffer does, so there JoinDummies is
needed, as in mpi4torch.  In-place functions write the tensor, but what they
return does not share its memory.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from .._native import InvalidValue, Unsupported, WrongState
from . import inductor
from .arrays import axis_of, dense, new, with_axes
from .constants import (ABSTAINS, ALLGATHER, ALLREDUCE, ALLTOALL, BCAST, GATHER, GRADIENT_TAG, MPI_SUM, NEEDS,
                        REDUCE, REDUCE_SCATTER, SCAN, SCATTER)
from .group import Group, numbered
from .handle import WaitHandle

if hasattr(torch, "compiler") and hasattr(torch.compiler, "is_compiling"):
    is_compiling = torch.compiler.is_compiling
else:
    def is_compiling() -> bool:
        return False

LIBRARY = torch.library.Library("godwit", "DEF")  # also of library.py


def _define(schema: str, kernel: Any, fake: Any, setup: Any = None, backward: Any = None) -> None:
    if not hasattr(torch.library, "register_autograd"):
        return  # before 2.4 there is nothing to compile for
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

    def fake_kernel(*args: Any) -> Any:
        inductor.prepare()
        return fake(*args)

    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"godwit::{name}", fake_kernel, lib=LIBRARY)
    if backward is not None:
        torch.library.register_autograd(f"godwit::{name}", backward, setup_context=setup, lib=LIBRARY)
    operator = getattr(torch.ops.godwit, name).default
    _register_effectful_op(operator, _EffectType.ORDERED)
    inductor.keep_order_of(operator)


def _records(x: Optional[Tensor]) -> bool:
    return x is not None and x.requires_grad and torch.is_grad_enabled()


# ---- collectives -------------------------------------------------------------------------------------


COMBINES = (ALLREDUCE, REDUCE, SCAN, REDUCE_SCATTER)


def _kernel(x: Tensor, comm: int, kind: int, op: int, root: int, axis: int, axis2: int, n: int,
            records: bool) -> Tensor:
    group = numbered(comm)
    native = group._reversed() if kind == SCAN and root else group._open()
    raw = None if kind == SCATTER and group._rank != root else dense(x)
    out, flags = native.exchange(kind, op, 0 if kind == SCAN else root, NEEDS if records else ABSTAINS, axis, axis2, n,
                                 raw, new)
    if records and flags & ABSTAINS:
        raise WrongState("in a compiled function, a rank records a gradient for a call for which another does not")
    expected = _shape(x, group, kind, root, axis, axis2, n)
    if out.shape != expected:
        raise InvalidValue(f"tensor: a compiled function expected a result of shape {tuple(expected)}, but the ranks' "
                           f"make {tuple(out.shape)}; lengths that differ between ranks work outside torch.compile")
    return out


def _shape(x: Tensor, group: Group, kind: int, root: int, axis: int, axis2: int, n: int) -> torch.Size:
    shape = list(x.shape)
    if kind in (ALLGATHER, ALLTOALL):
        shape[axis] *= group._size
    elif kind == GATHER:
        shape[axis] *= group._size if group._rank == root else 0
    if kind in (SCATTER, REDUCE_SCATTER):
        shape[axis] = n
    elif kind == ALLTOALL:
        shape[axis2] = n
    return torch.Size(shape)


def _fake(x: Tensor, comm: int, kind: int, op: int, root: int, axis: int, axis2: int, n: int, records: bool) -> Tensor:
    return x.new_empty(_shape(x, numbered(comm), kind, root, axis, axis2, n))


def _setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, ctx.comm, ctx.kind, ctx.op, ctx.root, ctx.axis, ctx.axis2, _, _ = inputs
    ctx.shape = x.shape
    if ctx.kind in COMBINES and ctx.op != MPI_SUM:
        ctx.save_for_backward(x, output)


def _backward(ctx: Any, grad: Tensor) -> Any:
    from . import collectives

    comm, kind, op, axis = numbered(ctx.comm), ctx.kind, ctx.op, ctx.axis
    if kind in COMBINES and op not in collectives._SAVES:
        collectives._refuse(op)
    x, y = ctx.saved_tensors or (None, None)
    if kind == ALLREDUCE:
        gradient = allreduce(comm, grad, MPI_SUM)
        if op != MPI_SUM:
            gradient = gradient * collectives._share(comm, op, x, y)
    elif kind == REDUCE:
        gradient = collectives._reduce_back(op, ctx.root, comm, grad, x)
    elif kind == SCAN:
        gradient = collectives._scan_back(op, ctx.root, comm, grad, x)
    elif kind == REDUCE_SCATTER:
        gradient = collectives._reduce_scatter_back(op, axis, comm, grad, x, y)
    elif kind == BCAST:
        gradient = reduce(comm, grad, MPI_SUM, ctx.root)
    elif kind == GATHER:
        gradient = _scattered(comm, grad, axis, ctx.shape, ctx.root)
    elif kind == ALLGATHER:
        gradient = reduce_scatter(comm, grad, MPI_SUM, axis, ctx.shape[axis])
    elif kind == SCATTER:
        whole = gather(comm, grad, axis, ctx.root)
        gradient = whole if comm._rank == ctx.root else grad.new_zeros(ctx.shape)
    else:
        gradient = alltoall(comm, grad, ctx.axis2, axis, ctx.shape[axis])
    return (gradient,) + (None,) * 8


_define("collective(Tensor x, int comm, int kind, int op, int root, int axis, int axis2, SymInt n, bool records) "
        "-> Tensor", _kernel, _fake, _setup, _backward)


def _call(comm: Group, x: Tensor, kind: int, op: int = 0, root: int = 0, axis: int = 0, axis2: int = 0,
          n: int = 0) -> Tensor:
    return torch.ops.godwit.collective(x, comm._number, kind, op, root, axis, axis2, n, _records(x))


def allreduce(comm: Group, x: Tensor, op: int) -> Tensor:
    return _call(comm, x, ALLREDUCE, op)


def reduce(comm: Group, x: Tensor, op: int, root: int) -> Tensor:
    return _call(comm, x, REDUCE, op, root)


def reduce_(comm: Group, x: Tensor, op: int, root: int) -> Tensor:
    # Other derivatives than that of a sum need the values that are about to go.
    return _overwrite(x, reduce(comm, x if op == MPI_SUM else x.clone(), op, root))


def bcast(comm: Group, x: Tensor, root: int) -> Tensor:
    return _call(comm, x, BCAST, 0, root)


def bcast_(comm: Group, x: Tensor, root: int) -> Tensor:
    return _overwrite(x, bcast(comm, x, root))


def _overwrite(x: Tensor, result: Tensor) -> Tensor:
    with torch.no_grad():
        x.copy_(result)
    return result


def scan(comm: Group, x: Tensor, op: int, from_last: int = 0) -> Tensor:
    return _call(comm, x, SCAN, op, from_last)


def gather(comm: Group, x: Tensor, axis: int, root: int) -> Tensor:
    x = with_axes(x)
    return _call(comm, x, GATHER, 0, root, axis_of(axis, x))


def allgather(comm: Group, x: Tensor, axis: int) -> Tensor:
    x = with_axes(x)
    return _call(comm, x, ALLGATHER, 0, 0, axis_of(axis, x))


def scatter(comm: Group, x: Optional[Tensor], axis: int, n: int, root: int) -> Tensor:
    if x is None:
        raise Unsupported("tensor: inside torch.compile every rank has to pass one; on ranks other than the root it "
                          "tells the type of the entries and the lengths along the other axes")
    x = with_axes(x)
    return _call(comm, x, SCATTER, 0, root, axis_of(axis, x), 0, n)


def _scattered(comm: Group, grad: Tensor, axis: int, shape: torch.Size, root: int) -> Tensor:
    """The gradient of Gather, which has no entries on ranks other than the root."""
    return _call(comm, grad, SCATTER, 0, root, axis, 0, shape[axis])


def alltoall(comm: Group, x: Tensor, gatheraxis: int, scatteraxis: int, n: int) -> Tensor:
    x = with_axes(x)
    gatheraxis, scatteraxis = axis_of(gatheraxis, x), axis_of(scatteraxis, x)
    if gatheraxis == scatteraxis:
        raise Unsupported("gatheraxis: it is also the scatteraxis, which is not possible inside torch.compile")
    return _call(comm, x, ALLTOALL, 0, 0, gatheraxis, scatteraxis, n)


def reduce_scatter(comm: Group, x: Tensor, op: int, axis: int, n: int) -> Tensor:
    x = with_axes(x)
    return _call(comm, x, REDUCE_SCATTER, op, 0, axis_of(axis, x), 0, n)


# ---- messages -----------------------------------------------------------------------------------------
# A handle is a tensor of one or two numbers: the key of a message under way, and its own number.

_under_way: dict[Any, Any] = {}
_n_keys = 0


def _put(message: Any) -> int:
    global _n_keys
    _n_keys += 1
    _under_way[_n_keys] = message
    return _n_keys


def _handle(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _isend(x: Tensor, comm: int, dest: int, tag: int, records: bool) -> Tensor:
    request, number = numbered(comm)._open().isend(dense(x), dest, tag, NEEDS if records else 0)
    return _handle(_put(request), number)


def _isend_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, ctx.comm, ctx.dest, _, _ = inputs
    ctx.shape, ctx.dtype = x.shape, x.dtype
    ctx.save_for_backward(output)


def _isend_back(ctx: Any, grad: Tensor) -> Any:
    handle, = ctx.saved_tensors
    return (torch.ops.godwit.take_gradient(handle, ctx.shape, ctx.dtype, ctx.comm, ctx.dest),) + (None,) * 4


def _begin_gradient(handle: Tensor, shape: list[int], dtype: torch.dtype, comm: int, dest: int) -> Tensor:
    number = int(handle[1])
    raw = torch.empty(shape, dtype=dtype)
    _under_way[comm, dest, number] = raw, numbered(comm)._open().irecv(raw, dest, GRADIENT_TAG + number)
    return torch.zeros_like(handle)


def _take_gradient(handle: Tensor, shape: list[int], dtype: torch.dtype, comm: int, dest: int) -> Tensor:
    if (comm, dest, int(handle[1])) not in _under_way:
        _begin_gradient(handle, shape, dtype, comm, dest)
    raw, request = _under_way.pop((comm, dest, int(handle[1])))
    request.wait()
    return raw


def _wait_sent(handle: Tensor, x: Tensor, comm: int, dest: int) -> Tensor:
    _under_way.pop(int(handle[0])).wait()
    return torch.zeros(0)


def _wait_sent_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    handle, x, ctx.comm, ctx.dest = inputs
    ctx.shape, ctx.dtype = x.shape, x.dtype
    ctx.save_for_backward(handle)


def _wait_sent_back(ctx: Any, grad: Tensor) -> Any:
    handle, = ctx.saved_tensors
    return (torch.ops.godwit.begin_gradient(handle, ctx.shape, ctx.dtype, ctx.comm, ctx.dest),) + (None,) * 3


def _irecv(like: Tensor, comm: int, source: int, tag: int) -> Tensor:
    raw = torch.empty(like.shape, dtype=like.dtype)
    return _handle(_put((raw, numbered(comm)._open().irecv(raw, source, tag))))


def _irecv_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.shape, ctx.dtype = inputs[0].shape, inputs[0].dtype


def _irecv_back(ctx: Any, grad: Tensor) -> Any:
    return grad.new_zeros(ctx.shape, dtype=ctx.dtype), None, None, None


def _wait_received(handle: Tensor, like: Tensor, comm: int, records: bool) -> tuple[Tensor, Tensor]:
    raw, request = _under_way.pop(int(handle[0]))
    source, _, _, flags, number = request.wait()
    if flags & NEEDS and not records:
        raise WrongState(f"rank {source} sent a tensor that requires a gradient, but in the compiled function the "
                         "buffer requires none; join it to something that does, or send a detached tensor")
    return raw, _handle(source, number, flags & NEEDS)


def _wait_received_setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.comm = inputs[2]
    ctx.save_for_backward(output[1])


def _wait_received_back(ctx: Any, grad: Tensor, _: Any) -> Any:
    return torch.ops.godwit.send_gradient(grad, ctx.saved_tensors[0], ctx.comm), None, None, None


def _send_gradient(grad: Tensor, status: Tensor, comm: int) -> Tensor:
    source, number, needs = map(int, status.tolist())
    group = numbered(comm)
    if needs:
        group._begin_pass()
        request, _ = group._open().isend(dense(grad), source, GRADIENT_TAG + number, 0)
        group._outgoing.append(request)
    return _handle(0)


_define("isend(Tensor x, int comm, int dest, int tag, bool records) -> Tensor", _isend,
        lambda x, comm, dest, tag, records: x.new_empty(2, dtype=torch.float64), _isend_setup, _isend_back)
_define("begin_gradient(Tensor handle, SymInt[] shape, ScalarType dtype, int comm, int dest) -> Tensor",
        _begin_gradient, lambda handle, shape, dtype, comm, dest: torch.empty_like(handle))
_define("take_gradient(Tensor handle, SymInt[] shape, ScalarType dtype, int comm, int dest) -> Tensor",
        _take_gradient, lambda handle, shape, dtype, comm, dest: handle.new_empty(shape, dtype=dtype))
_define("wait_sent(Tensor handle, Tensor x, int comm, int dest) -> Tensor", _wait_sent,
        lambda handle, x, comm, dest: x.new_empty(0, dtype=torch.float32), _wait_sent_setup, _wait_sent_back)
_define("irecv(Tensor like, int comm, int source, int tag) -> Tensor", _irecv,
        lambda like, comm, source, tag: like.new_empty(1, dtype=torch.float64), _irecv_setup, _irecv_back)
_define("wait_received(Tensor handle, Tensor like, int comm, bool records) -> (Tensor, Tensor)", _wait_received,
        lambda handle, like, comm, records: (like.new_empty(like.shape), like.new_empty(3, dtype=torch.float64)),
        _wait_received_setup, _wait_received_back)
_define("send_gradient(Tensor grad, Tensor status, int comm) -> Tensor", _send_gradient,
        lambda grad, status, comm: status.new_empty(1))


def isend(comm: Group, x: Tensor, dest: int, tag: int) -> WaitHandle:
    handle = WaitHandle([torch.ops.godwit.isend(x, comm._number, dest, tag, _records(x))])
    handle._message = (x, dest)
    return handle


def irecv(comm: Group, buffer: Tensor, source: int, tag: int) -> WaitHandle:
    handle = WaitHandle([torch.ops.godwit.irecv(buffer, comm._number, source, tag)])
    handle._message = (buffer, None)
    return handle


def wait(comm: Group, handle: WaitHandle) -> Tensor:
    if handle._message is None:
        raise WrongState("handle: its message was waited for already")
    x, dest = handle._message
    handle._message = None
    if dest is not None:
        return join(x, [torch.ops.godwit.wait_sent(handle.dummy, x, comm._number, dest)])
    result, _ = torch.ops.godwit.wait_received(handle.dummy, x, comm._number, _records(handle.dummy))
    return _overwrite(x, result)


def sendrecv(comm: Group, x: Tensor, dest: int, buffer: Tensor, source: int, sendtag: int, recvtag: int) -> Tensor:
    outgoing = isend(comm, x, dest, sendtag)
    received = wait(comm, irecv(comm, join(buffer, [outgoing.dummy]), source, recvtag))
    return join(received, [wait(comm, outgoing)])


def join(x: Tensor, dummies: list[Tensor]) -> Tensor:
    """`x`, by arithmetic that depends on the dummies and leaves it as it is."""
    for dummy in dummies:
        if dummy.requires_grad:
            x = x + dummy.reshape(-1)[:0].sum().to(x.dtype)
    return x


def barrier(comm: Group) -> None:
    torch.ops.godwit.barrier(torch.zeros(1), comm._number)


def _barrier(x: Tensor, comm: int) -> Tensor:
    numbered(comm)._open().barrier()
    return torch.zeros(1)


# With a tensor in and out, because inductor frees memory too early around an operator that has none.
_define("barrier(Tensor x, int comm) -> Tensor", _barrier, lambda x, comm: x.new_empty(1))
