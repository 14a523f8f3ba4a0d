"""Communicators that other libraries made: mpi4py's and PyTorch's own.

Both say which ranks of the world belong to a communicator, and in which order;
Godwit then makes its own for them.
"""

from __future__ import annotations

import sys
from typing import Any, Sequence

from .. import _native, job
from .._native import InvalidType, Unsupported
from .communicator import COMM_WORLD, Communicator
from .group import communicator


def comm_from_mpi4py(comm: Any) -> Communicator:
    """The ranks of an mpi4py communicator, in their order.  All of them call it.

        from mpi4py import MPI
        comm = godwit.comm_from_mpi4py(MPI.COMM_WORLD)
    """
    MPI = sys.modules.get("mpi4py.MPI")
    if MPI is None or not isinstance(comm, MPI.Comm):
        raise InvalidType(f"comm: {comm!r} is no communicator of mpi4py")
    if isinstance(comm, MPI.Intercomm):
        raise Unsupported("comm: it connects two groups; Godwit's communicators have one")
    everybody = MPI.COMM_WORLD
    world = job.init()
    _compare("mpi4py", world, everybody.Get_rank(), everybody.Get_size())
    group, whole = comm.Get_group(), everybody.Get_group()
    try:
        ranks = MPI.Group.Translate_ranks(group, range(group.Get_size()), whole)
    finally:
        group.Free()
        whole.Free()
    if MPI.UNDEFINED in ranks:
        raise Unsupported("comm: it has processes that are not in MPI.COMM_WORLD")
    return _of_ranks(world, list(ranks))


def comm_from_torch(process_group: Any = None) -> Communicator:
    """The ranks of a process group of torch.distributed, None for the default one.  All of them call it."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        raise InvalidType("process_group: torch.distributed is not initialized; call init_process_group() first")
    if process_group is None:
        process_group = dist.group.WORLD
    world = job.init()
    _compare("torch.distributed", world, dist.get_rank(), dist.get_world_size())
    if hasattr(dist, "get_process_group_ranks"):
        ranks = dist.get_process_group_ranks(process_group)
    else:
        size = dist.get_world_size(process_group)
        ranks = [dist.get_global_rank(process_group, rank) for rank in range(size)]
    return _of_ranks(world, ranks)


def _compare(other: str, world: _native.World, rank: int, size: int) -> None:
    if (world.rank, world.size) != (rank, size):
        raise Unsupported(f"comm: this process is rank {rank} of {size} for {other}, but rank {world.rank} of "
                          f"{world.size} for Godwit ({world.reason}); let one launcher start both, such as mpirun")


def _of_ranks(world: _native.World, ranks: Sequence[int]) -> Communicator:
    if list(ranks) == list(range(world.size)):
        return COMM_WORLD
    return communicator(_native.comm_of_ranks(world, list(ranks)))
