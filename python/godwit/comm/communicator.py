"""Communicator: MPI's functions on tensors, which PyTorch can differentiate through.

The class is made so that TorchScript can compile it when a scripted function
takes a communicator: what it shall see is in this file, typed, and each function
says there which operator of library.py it is.  Everything else is in Group.
"""

from typing import Optional

import torch

from . import collectives, compiled, messages
from .constants import MPI_SUM
from .group import Group, _numbers
from .handle import WaitHandle

is_compiling = compiled.is_compiling


class Communicator(Group):
    """Some ranks of the job.  COMM_WORLD is all of them; Split makes others.

    Every rank of it calls the same functions in the same order; ranks that
    disagree get RanksDisagree, and a wait that takes too long ends with TimedOut.

    Tensors may be of any type that Godwit knows, on the CPU, contiguous or not.
    A tensor without axes counts as one of length 1 where there is an axis to
    name; axes below 0 count from the last.  NumPy arrays give NumPy arrays,
    and no derivative.

    An underscore means in place: the tensor's memory is overwritten, and the
    tensor that is returned shares it.  Go on with that one; another use of the
    old one raises an error in the backward pass.
    """

    def __init__(self, number: int):
        self._number = number
        if not torch.jit.is_scripting():
            self._setup()

    @property
    def rank(self) -> int:
        """This process's number in the communicator, from 0."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.rank(self._number)
        else:
            if self._rank < 0 or self._is_world:
                self._open()
            return self._rank

    @property
    def size(self) -> int:
        """How many processes the communicator has."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.size(self._number)
        else:
            if self._size < 0 or self._is_world:
                self._open()
            return self._size

    def Barrier(self) -> None:
        """Return when every rank has called it."""
        if torch.jit.is_scripting():
            torch.ops.godwit.Barrier(self._number)
        else:
            if is_compiling():
                compiled.barrier(self)
            else:
                self._open().barrier()

    # ---- collectives ------------------------------------------------------------------------

    def Allreduce(self, tensor: torch.Tensor, op: int = MPI_SUM) -> torch.Tensor:
        """Combine the tensors of all ranks, entry by entry; every rank gets the result.

            mean = comm.Allreduce(loss, MPI_SUM) / comm.size
        """
        if torch.jit.is_scripting():
            return torch.ops.godwit.Allreduce(tensor, self._number, op)
        else:
            return collectives.allreduce(self, tensor, op)

    def Bcast_(self, tensor: torch.Tensor, root: int) -> torch.Tensor:
        """In place: every rank's tensor becomes that of `root`."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.Bcast_(tensor, self._number, root)
        else:
            return collectives.bcast_(self, tensor, root)

    def Reduce_(self, tensor: torch.Tensor, op: int, root: int) -> torch.Tensor:
        """In place: combine the tensors of all ranks; `root` gets the result, the others zeros."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.Reduce_(tensor, self._number, op, root)
        else:
            return collectives.reduce_(self, tensor, op, root)

    def Scan(self, tensor: torch.Tensor, op: int = MPI_SUM) -> torch.Tensor:
        """Rank r gets the tensors of the ranks 0 to r combined."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.Scan(tensor, self._number, op)
        else:
            return collectives.scan(self, tensor, op)

    def Gather(self, tensor: torch.Tensor, gatheraxis: int, root: int) -> torch.Tensor:
        """`root` gets all tensors, one after the other along the axis; the others get none of it.

        Lengths along the axis may differ between ranks.  What ranks other than
        `root` get has length 0 along it.
        """
        if torch.jit.is_scripting():
            return torch.ops.godwit.Gather(tensor, self._number, gatheraxis, root)
        else:
            return collectives.gather(self, tensor, gatheraxis, root)

    def Allgather(self, tensor: torch.Tensor, gatheraxis: int) -> torch.Tensor:
        """Every rank gets all tensors, one after the other along the axis."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.Allgather(tensor, self._number, gatheraxis)
        else:
            return collectives.allgather(self, tensor, gatheraxis)

    def Scatter(self, tensor: Optional[torch.Tensor], scatteraxis: int, numelem: int, root: int) -> torch.Tensor:
        """The tensor of `root` is cut along the axis, and each rank gets `numelem` of it, in the order of ranks.

        What other ranks pass may be anything, also None.
        """
        if torch.jit.is_scripting():
            return torch.ops.godwit.Scatter(tensor, self._number, scatteraxis, numelem, root)
        else:
            return collectives.scatter(self, tensor, scatteraxis, numelem, root)

    def Alltoall(self, tensor: torch.Tensor, gatheraxis: int, scatteraxis: int, numelem: int) -> torch.Tensor:
        """Each tensor is cut along `scatteraxis`; a rank gets `numelem` of each, put together along `gatheraxis`.

        It is what Gather and then Scatter give, without the detour through a
        root.  If both axes are the same, then so is that: the tensors are put in
        a row and cut anew.
        """
        if torch.jit.is_scripting():
            return torch.ops.godwit.Alltoall(tensor, self._number, gatheraxis, scatteraxis, numelem)
        else:
            return collectives.alltoall(self, tensor, gatheraxis, scatteraxis, numelem)

    def Reduce_scatter(self, tensor: torch.Tensor, op: int, scatteraxis: int, numelem: int) -> torch.Tensor:
        """Allreduce, of which each rank gets `numelem` along the axis, in the order of ranks."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.Reduce_scatter(tensor, self._number, op, scatteraxis, numelem)
        else:
            return collectives.reduce_scatter(self, tensor, op, scatteraxis, numelem)

    # ---- messages -----------------------------------------------------------------------------

    def Isend(self, tensor: torch.Tensor, dest: int, tag: int = 0) -> WaitHandle:
        """Begin to send to rank `dest`.  Do not change the tensor until Wait has returned."""
        if torch.jit.is_scripting():
            return WaitHandle(torch.ops.godwit.Isend(tensor, self._number, dest, tag))
        else:
            if is_compiling():
                return compiled.isend(self, tensor, dest, tag)
            return messages.begin(messages.isend, self, tensor, dest, tag)

    def Irecv(self, tensor: torch.Tensor, source: int, tag: int = 0) -> WaitHandle:
        """Begin to receive into the tensor's memory, from rank `source`, or ANY_SOURCE, with this tag, or ANY_TAG.

        Type and number of entries must be those of the message.
        """
        if torch.jit.is_scripting():
            return WaitHandle(torch.ops.godwit.Irecv(tensor, self._number, source, tag))
        else:
            if is_compiling():
                return compiled.irecv(self, tensor, source, tag)
            return messages.begin(messages.irecv, self, tensor, source, tag)

    def Wait(self, waithandle: WaitHandle) -> torch.Tensor:
        """Wait for the message; returns what was received, or the tensor that was sent."""
        if torch.jit.is_scripting():
            return torch.ops.godwit.Wait(waithandle._handle)
        else:
            if is_compiling():
                return compiled.wait(self, waithandle)
            return messages.end(waithandle)

    def Send(self, tensor: torch.Tensor, dest: int, tag: int = 0) -> torch.Tensor:
        """Send to rank `dest`.  Returns the tensor, which then depends on the sending."""
        return self.Wait(self.Isend(tensor, dest, tag))

    def Recv(self, tensor: torch.Tensor, source: int, tag: int = 0) -> torch.Tensor:
        """Receive into the tensor's memory; returns a tensor that shares it."""
        return self.Wait(self.Irecv(tensor, source, tag))

    def Sendrecv(self, sendtensor: torch.Tensor, dest: int, recvtensor: torch.Tensor, source: int, sendtag: int = 0,
                 recvtag: int = 0) -> torch.Tensor:
        """Send and receive at once; returns what was received, which then depends on the sending too.

            left = comm.Sendrecv(edge, (comm.rank + 1) % comm.size, torch.empty_like(edge), (comm.rank - 1) % comm.size)
        """
        if torch.jit.is_scripting():
            return torch.ops.godwit.Sendrecv(sendtensor, self._number, dest, recvtensor, source, sendtag, recvtag)
        else:
            if is_compiling():
                return compiled.sendrecv(self, sendtensor, dest, recvtensor, source, sendtag, recvtag)
            return messages.sendrecv(self, sendtensor, dest, recvtensor, source, sendtag, recvtag)


COMM_WORLD = Communicator(next(_numbers))
"""All processes of the job.  It is joined at the first use, if godwit.init() was not called before."""
COMM_WORLD._is_world = True
