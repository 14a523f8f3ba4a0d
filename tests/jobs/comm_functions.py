"""Functions that use all of godwit.comm, written so that torch.jit.script and torch.compile can take them."""

import torch

import godwit.comm
from godwit.comm import Communicator, JoinDummies, JoinDummiesHandle


def everything(x: torch.Tensor, comm: Communicator) -> torch.Tensor:
    n = comm.size
    y = comm.Allreduce(x, godwit.comm.MPI_SUM) * comm.Allreduce(x, godwit.comm.MPI_PROD)
    y = y + comm.Allreduce(x * 2, godwit.comm.MPI_MAX) + comm.Scan(x, godwit.comm.MPI_SUM)
    y = y + comm.Scan(x, godwit.comm.MPI_PROD)
    y = y * comm.Allgather(x, 0).sum() + comm.Gather(x, 0, 0).sum()
    row = torch.cat([x] * n)
    y = y + comm.Scatter(row, 0, 3, 0) + comm.Reduce_scatter(row, godwit.comm.MPI_SUM, -1, 3)
    y = y + comm.Reduce_scatter(row, godwit.comm.MPI_MIN, 0, 3)
    comm.Barrier()
    return y * comm.Alltoall(torch.stack([x] * n), 1, 0, 1).sum()


def everything_in_place(x: torch.Tensor, comm: Communicator) -> torch.Tensor:
    last = comm.size - 1
    y = comm.Bcast_(x * 3, last) + comm.Reduce_(x * 2, godwit.comm.MPI_SUM, 0)
    return y + comm.Reduce_(x + 1, godwit.comm.MPI_PROD, last) + comm.Reduce_(x + 1, godwit.comm.MPI_MAX, 0)


def exchange(x: torch.Tensor, comm: Communicator) -> torch.Tensor:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1 + comm.size) % comm.size
    handle = comm.Isend(x * x, right, 7)
    got = comm.Recv(JoinDummies(torch.empty_like(x), [handle.dummy]), left, 7)
    sent = comm.Wait(JoinDummiesHandle(handle, [got]))
    return JoinDummies(x * got, [sent])


def halo(x: torch.Tensor, comm: Communicator) -> torch.Tensor:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1 + comm.size) % comm.size
    for _ in range(3):
        from_left = comm.Sendrecv(x[-1:], right, torch.empty_like(x[:1]), left)
        from_right = comm.Sendrecv(x[:1], left, torch.empty_like(x[:1]), right, 1, 1)
        wide = torch.cat([from_left, x, from_right])
        x = 0.5 * x + 0.25 * (wide[2:] + wide[:-2])
    return x
