"""MPI-style messages and collectives that PyTorch can differentiate through.

    import torch
    from godwit.comm import COMM_WORLD as comm, MPI_SUM

    x = torch.ones(3, requires_grad=True)
    y = comm.Allreduce(x, MPI_SUM)        # on every rank
    y.sum().backward()
    assert x.grad.eq(comm.size).all()     # of the sum of all ranks' losses

Every rank differentiates its own loss, and the sum over the ranks is what is
differentiated.
"""

from . import library  # noqa: F401  the operators that TorchScript and torch.compile see
from .communicator import COMM_WORLD, Communicator
from .constants import (ANY_SOURCE, ANY_TAG, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_MAX,
                        MPI_MAXLOC, MPI_MIN, MPI_MINLOC, MPI_PROD, MPI_SUM)
from .handle import WaitHandle
from .interop import comm_from_mpi4py, comm_from_torch
from .joins import JoinDummies, JoinDummiesHandle

MPI_Communicator = Communicator  # as mpi4torch calls it

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "COMM_WORLD",
    "Communicator",
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
    "comm_from_torch",
]
