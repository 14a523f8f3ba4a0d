"""mpi4torch's names, on top of godwit.comm.

What differs from godwit.comm, because it does in mpi4torch:

- Errors are RuntimeErrors, besides what they are in Godwit.
- The input of Bcast_ may be used again: it keeps its history, and on the root,
  where it is only read, also what was made from it before.
- Every dummy of JoinDummies gets a gradient of zeros, also one that is no leaf.

In scripted functions the last two are as in godwit.comm.

What is as in godwit.comm, though mpi4torch has it otherwise:

- A result requires a gradient if the input of any rank does, not only one's own.
- A message must have as many entries as the tensor that receives it, not fewer.
- In place means in place also for tensors that are not contiguous.
- The job is joined at the first use of a communicator, not by importing this,
  so that processes a rank starts can import it too.
"""

from typing import Any, List, Optional

import torch
from torch.autograd import Function

from .. import comm as _comm
from .._native import Error
from ..comm import (MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_MAX, MPI_MAXLOC, MPI_MIN, MPI_MINLOC,
                    MPI_PROD, MPI_SUM, Communicator, WaitHandle)
from ..comm.group import _numbers
from ..comm.nodes import Origin

__all__ = [
    "COMM_WORLD",
    "JoinDummies",
    "JoinDummiesHandle",
    "MPI_BAND",
    "MPI_BOR",
    "MPI_BXOR",
    "MPI_Communicator",
    "MPI_LAND",
    "MPI_LOR",
    "MPI_LXOR",
    "MPI_MAX",
    "MPI_MAXLOC",
    "MPI_MIN",
    "MPI_MINLOC",
    "MPI_PROD",
    "MPI_SUM",
    "WaitHandle",
    "comm_from_mpi4py",
    "deactivate_cuda_aware_mpi_support",
]


# ---- what differs ---------------------------------------------------------------------------


class _RuntimeErrors:
    """Lets Godwit's errors leave as RuntimeErrors too."""

    _kinds: dict[type, type] = {}

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Optional[type], error: Optional[BaseException], trace: Any) -> None:
        if isinstance(error, Error) and not isinstance(error, RuntimeError):
            if kind not in self._kinds:
                self._kinds[kind] = type(kind.__name__, (kind, RuntimeError), {"__module__": kind.__module__})
            raise self._kinds[kind](*error.args).with_traceback(trace) from None


_runtime_errors = _RuntimeErrors()


class _Same(Function):
    """The same memory as that of another tensor, to be used up in its place.

    Without a version in common, autograd does not take what is done to the one
    for a change of the other.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, unchanged: bool) -> torch.Tensor:
        return x.data if unchanged else x.detach()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None


def _zeroed(dummy: Any) -> Any:
    """A dummy whose origin gets a gradient of zeros; those of messages need none."""
    plain = isinstance(dummy, torch.Tensor) and dummy.grad_fn is not None and not hasattr(dummy, "_godwit_sent")
    return Origin.apply(dummy) if plain and torch.is_grad_enabled() else dummy


# ---- mpi4torch's names --------------------------------------------------------------------


class MPI_Communicator(Communicator):
    """Some processes of the job: COMM_WORLD, or what comm_from_mpi4py returns.

    Written out, because TorchScript compiles only what it sees here.
    """

    def __init__(self, number: int):
        self._number = number
        if not torch.jit.is_scripting():
            self._setup()

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.rank(self._number)
        else:
            with _runtime_errors:
                return Communicator.rank.fget(self)

    @property
    def size(self) -> int:
        """How many processes there are."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.size(self._number)
        else:
            with _runtime_errors:
                return Communicator.size.fget(self)

    def Allreduce(self, tensor: torch.Tensor, op: int) -> torch.Tensor:
        """Combine the tensors of all ranks, entry by entry; every rank gets the result."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.Allreduce(tensor, self._number, op)
        else:
            with _runtime_errors:
                return Communicator.Allreduce(self, tensor, op)

    def Bcast_(self, tensor: torch.Tensor, root: int) -> torch.Tensor:
        """In place: every rank's tensor becomes that of `root`."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.Bcast_(tensor, self._number, root)
        else:
            with _runtime_errors:
                unchanged = self.rank == root
                if isinstance(tensor, torch.Tensor) and (unchanged or tensor.grad_fn is not None):
                    tensor = _Same.apply(tensor, unchanged)
                return Communicator.Bcast_(self, tensor, root)

    def Reduce_(self, tensor: torch.Tensor, op: int, root: int) -> torch.Tensor:
        """In place: combine the tensors of all ranks; `root` gets the result, the others zeros."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.Reduce_(tensor, self._number, op, root)
        else:
            with _runtime_errors:
                return Communicator.Reduce_(self, tensor, op, root)

    def Gather(self, tensor: torch.Tensor, gatheraxis: int, root: int) -> torch.Tensor:
        """`root` gets all tensors, one after the other along the axis; the others get length 0 along it."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.Gather(tensor, self._number, gatheraxis, root)
        else:
            with _runtime_errors:
                return Communicator.Gather(self, tensor, gatheraxis, root)

    def Allgather(self, tensor: torch.Tensor, gatheraxis: int) -> torch.Tensor:
        """Every rank gets all tensors, one after the other along the axis."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.Allgather(tensor, self._number, gatheraxis)
        else:
            with _runtime_errors:
                return Communicator.Allgather(self, tensor, gatheraxis)

    def Scatter(self, tensor: torch.Tensor, scatteraxis: int, numelem: int, root: int) -> torch.Tensor:
        """The tensor of `root` is cut along the axis; each rank gets `numelem` of it.  Others may pass anything."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.Scatter(tensor, self._number, scatteraxis, numelem, root)
        else:
            with _runtime_errors:
                return Communicator.Scatter(self, tensor, scatteraxis, numelem, root)

    def Alltoall(self, tensor: torch.Tensor, gatheraxis: int, scatteraxis: int, numelem: int) -> torch.Tensor:
        """What Gather and then Scatter give, without a root."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.Alltoall(tensor, self._number, gatheraxis, scatteraxis, numelem)
        else:
            with _runtime_errors:
                return Communicator.Alltoall(self, tensor, gatheraxis, scatteraxis, numelem)

    def Isend(self, tensor: torch.Tensor, dest: int, tag: int) -> WaitHandle:
        """Begin to send."""
        if torch.jit.is_scripting():
            return WaitHandle(torch.ops.godwit.Isend(tensor, self._number, dest, tag))
        else:
            with _runtime_errors:
                return Communicator.Isend(self, tensor, dest, tag)

    def Irecv(self, tensor: torch.Tensor, source: int, tag: int) -> WaitHandle:
        """Begin to receive into the tensor's memory."""
        if torch.jit.is_scripting():
            return WaitHandle(torch.ops.godwit.Irecv(tensor, self._number, source, tag))
        else:
            with _runtime_errors:
                return Communicator.Irecv(self, tensor, source, tag)

    def Wait(self, waithandle: WaitHandle) -> torch.Tensor:
        """What was received, or the tensor that was sent."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.Wait(waithandle._handle)
        else:
            with _runtime_errors:
                return Communicator.Wait(self, waithandle)

    def Send(self, tensor: torch.Tensor, dest: int, tag: int) -> torch.Tensor:
        """Isend and Wait."""
        return self.Wait(self.Isend(tensor, dest, tag))

    def Recv(self, tensor: torch.Tensor, source: int, tag: int) -> torch.Tensor:
        """Irecv and Wait."""
        return self.Wait(self.Irecv(tensor, source, tag))


COMM_WORLD = MPI_Communicator(next(_numbers))
"""All processes of the job."""
COMM_WORLD._is_world = True


def JoinDummies(loopthrough: torch.Tensor, dummies: List[torch.Tensor]) -> torch.Tensor:
    """`loopthrough` as it is, but in autograd's eyes made from the dummies too."""
    if torch.jit.is_scripting():
        return torch.ops.godwit.JoinDummies(loopthrough, dummies)
    else:
        with _runtime_errors:
            return _comm.JoinDummies(loopthrough, [_zeroed(dummy) for dummy in dummies])


def JoinDummiesHandle(handle: WaitHandle, dummies: List[torch.Tensor]) -> WaitHandle:
    """The same for a handle: wait for the one that is returned."""
    if torch.jit.is_scripting():
        raw = handle._handle
        return WaitHandle([torch.ops.godwit.JoinDummies(raw[0], dummies), raw[1]])
    else:
        with _runtime_errors:
            return _comm.JoinDummiesHandle(handle, [_zeroed(dummy) for dummy in dummies])


def comm_from_mpi4py(comm: Any) -> MPI_Communicator:
    """The ranks of an mpi4py communicator, in their order.  All of them call it."""
    with _runtime_errors:
        found = _comm.comm_from_mpi4py(comm)
    if found is _comm.COMM_WORLD:
        return COMM_WORLD
    made = MPI_Communicator(next(_numbers))
    made._take(found._open())
    return made


def deactivate_cuda_aware_mpi_support() -> None:
    """Nothing to deactivate: Godwit takes tensors on the CPU only."""
