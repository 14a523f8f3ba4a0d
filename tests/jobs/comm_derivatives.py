"""A program: derivatives of every function of godwit.comm against differences.

L is the sum over all ranks of <v_r, f(y_r)>, where y_r is what rank r gets and v_r
is random.  One entry of one rank's input is moved at a time while all ranks
evaluate together, and the difference of L is compared with that entry's
gradient.  (torch.autograd.gradcheck moves the inputs of all ranks at once, which
is something else.)  The second derivative is tried in the same way, with the sum
of <w_r, gradient_r> in the place of L.

Prints, from rank 0, a line for each function: name, types, largest error.
"""

from __future__ import annotations

import os
import random
import sys
from typing import Callable

import torch
from torch import Tensor

from godwit.comm import (ANY_SOURCE, ANY_TAG, COMM_WORLD, JoinDummies, JoinDummiesHandle, MPI_MAX, MPI_MIN, MPI_PROD,
                         MPI_SUM)

STEP = 1e-4
TOLERANCE = 1e-6
MOST_ENTRIES = int(os.environ.get("COMM_ENTRIES", 2))  # that are moved, of each rank

comm = COMM_WORLD
rank, size = comm.rank, comm.size
last = size - 1
right, left = (rank + 1) % size, (rank - 1) % size
chooser = random.Random(17)


# ---- what is differentiated: a function of this rank's input, and the input's shape ------------------


def exchange(x: Tensor) -> Tensor:
    """All dependencies made explicit, as mpi4torch wants it."""
    handle = comm.Isend(x, right, 0)
    got = comm.Recv(JoinDummies(torch.empty_like(x), [handle.dummy]), left, 0)
    sent = comm.Wait(JoinDummiesHandle(handle, [got]))
    return JoinDummies(x * got, [sent])


def careless_exchange(x: Tensor) -> Tensor:
    """The same without a word about dependencies."""
    handle = comm.Isend(x, right, 0)
    got = comm.Recv(torch.empty_like(x), left, 0)
    comm.Wait(handle)
    return x * got


def crossing(x: Tensor) -> Tensor:
    """Both ways at once, and received from anybody."""
    handles = [comm.Isend(x, right, 1), comm.Isend(x * x, left, 2)]
    from_left = comm.Irecv(torch.empty_like(x), left, 1)
    from_right = comm.Irecv(torch.empty_like(x), right, 2)
    b, a = comm.Wait(from_right), comm.Wait(from_left)
    done = [comm.Wait(handle) for handle in handles]
    return JoinDummies(a * b, done)


def from_anybody(x: Tensor) -> Tensor:
    handle = comm.Isend(x, right, 3)
    got = comm.Recv(torch.empty_like(x), ANY_SOURCE, ANY_TAG)
    sent = comm.Wait(handle)
    result = JoinDummies(got * sent, [])  # what was sent counts as well
    comm.Barrier()  # else the next round's message could come first
    return result


def down_the_line(x: Tensor) -> Tensor:
    """Each rank needs what the one before it made."""
    y = x
    if rank > 0:
        # Joined to x, because torch.autograd.grad runs only what leads to x.
        y = x * comm.Recv(JoinDummies(torch.empty_like(x), [x]), rank - 1, 4)
    if rank < last:
        y = comm.Send(y, rank + 1, 4)
    return y


def sendrecv(x: Tensor) -> Tensor:
    return x + comm.Sendrecv(x * x, right, torch.empty_like(x), left, 5, 5)


def in_parts(x: Tensor) -> Tensor:
    part = comm.Split(rank % 2, -rank)
    return part.Allreduce(x, MPI_PROD)


def scatter_shape(root: int) -> tuple[int, ...]:
    return (2, sum(1 + r for r in range(size))) if rank == root else (1,)


Case = tuple[str, Callable[[Tensor], Tensor], tuple[int, ...]]
CASES: list[Case] = [
    ("Allreduce SUM", lambda x: comm.Allreduce(x, MPI_SUM), (3,)),
    ("Allreduce PROD", lambda x: comm.Allreduce(x, MPI_PROD), (2, 2)),
    ("Allreduce MAX", lambda x: comm.Allreduce(x, MPI_MAX), (3,)),
    ("Allreduce MIN", lambda x: comm.Allreduce(x, MPI_MIN), (3,)),
    ("Allreduce of a scalar", lambda x: comm.Allreduce(x, MPI_SUM), ()),
    ("Reduce_ SUM", lambda x: comm.Reduce_(x * 1, MPI_SUM, last), (3,)),
    ("Reduce_ PROD", lambda x: comm.Reduce_(x * 1, MPI_PROD, 0), (3,)),
    ("Reduce_ MAX", lambda x: comm.Reduce_(x * 1, MPI_MAX, 0), (3,)),
    ("Reduce_ MIN", lambda x: comm.Reduce_(x * 1, MPI_MIN, last), (3,)),
    ("Reduce_ of a transposed", lambda x: comm.Reduce_((x * 1).t(), MPI_SUM, 0), (2, 2)),
    ("Bcast_", lambda x: comm.Bcast_(x * 1, last), (3,)),
    ("Scan SUM", lambda x: comm.Scan(x, MPI_SUM), (3,)),
    ("Scan PROD", lambda x: comm.Scan(x, MPI_PROD), (3,)),
    ("Scan MAX", lambda x: comm.Scan(x, MPI_MAX), (3,)),
    ("Scan MIN", lambda x: comm.Scan(x, MPI_MIN), (3,)),
    ("Gather", lambda x: comm.Gather(x, 1, last), (2, 1 + rank)),
    ("Allgather", lambda x: comm.Allgather(x, -1), (2, 1 + rank)),
    ("Scatter", lambda x: comm.Scatter(x, 1, 1 + rank, last), scatter_shape(last)),
    ("Alltoall", lambda x: comm.Alltoall(x, 0, 1, 1), (1 + rank % 2, size)),
    ("Alltoall along one axis", lambda x: comm.Alltoall(x, 0, 0, 1 + (rank + 1) % size), (1 + rank,)),
    ("Reduce_scatter SUM", lambda x: comm.Reduce_scatter(x, MPI_SUM, 0, 1 + rank % 2), (size + size // 2,)),
    ("Reduce_scatter PROD", lambda x: comm.Reduce_scatter(x, MPI_PROD, 0, 1), (size,)),
    ("Reduce_scatter MAX", lambda x: comm.Reduce_scatter(x, MPI_MAX, -1, 1), (1, size)),
    ("Reduce_scatter MIN", lambda x: comm.Reduce_scatter(x, MPI_MIN, -1, 1), (1, size)),
    ("Isend Recv Wait", exchange, (2,)),
    ("Isend Recv Wait unjoined", careless_exchange, (2,)),
    ("Isend Irecv Wait crossing", crossing, (2,)),
    ("Recv from anybody", from_anybody, (2,)),
    ("Send Recv in a line", down_the_line, (2,)),
    ("Sendrecv", sendrecv, (2,)),
    ("Split, then Allreduce", in_parts, (2,)),
]


# ---- comparing -------------------------------------------------------------------------------------------


def total(value: Tensor) -> float:
    with torch.no_grad():
        return float(comm.Allreduce(value.detach().real.sum(), MPI_SUM))


def choose(n: int) -> list[int]:
    """Some entries, the same on all ranks."""
    return sorted(chooser.sample(range(n), min(n, MOST_ENTRIES)))


def error(function: Callable[[Tensor], Tensor], gradient: Tensor, x: Tensor, records: bool) -> float:
    """The largest difference between a gradient and the differences of function's sum over all ranks."""
    worst = 0.0
    for mover in range(size):
        n = int(comm.Bcast_(torch.tensor(x.numel()), mover))
        for i in choose(n):
            for unit in (1, 1j) if x.is_complex() else (1,):
                values = []
                for step in (STEP, -STEP):
                    moved = x.detach().clone()
                    if rank == mover:
                        moved.view(-1)[i] += step * unit
                    values.append(total(function(moved.requires_grad_(records))))
                if rank == mover:
                    difference = (values[0] - values[1]) / (2 * STEP)
                    g = gradient.reshape(-1)[i]
                    own = g.imag if unit == 1j else g.real
                    worst = max(worst, abs(float(own) - difference) / (1 + abs(difference)))
    return float(comm.Allreduce(torch.tensor(worst), MPI_MAX))


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    # Entries of different ranks differ by far more than a step, so that extrema stay where they are.
    x = torch.rand(shape, dtype=torch.float64) + 0.1 * rank + 0.5
    return x if dtype == torch.float64 else torch.complex(x, torch.rand(shape, dtype=torch.float64))


def errors(case: Case, dtype: torch.dtype) -> tuple[float, float]:
    name, function, shape = case
    x = numbers(shape, dtype).requires_grad_()
    with torch.no_grad():
        result = function(x.clone())
    v, w = numbers(tuple(result.shape), dtype), numbers(shape, dtype)

    def loss(x: Tensor) -> Tensor:
        y = function(x)
        return (v.conj() * y * y).sum().real  # not linear, so that there is a second derivative

    def slope(x: Tensor) -> Tensor:
        gradient, = torch.autograd.grad(loss(x), x, create_graph=True)
        return (w.conj() * gradient).sum().real

    first, = torch.autograd.grad(loss(x), x)
    second, = torch.autograd.grad(slope(x), x)
    return error(loss, first, x, False), error(slope, second, x, True)


def main() -> int:
    torch.manual_seed(17 + rank)
    failed = 0
    for case in CASES:
        for dtype in (torch.float64, torch.complex128):
            if dtype.is_complex and ("MAX" in case[0] or "MIN" in case[0]):
                continue
            worst = errors(case, dtype)
            bad = not max(worst) < TOLERANCE
            failed += bad
            if rank == 0:
                line = "|".join(["case", case[0], str(dtype)[6:], f"{worst[0]:.1e}", f"{worst[1]:.1e}",
                                 "BAD" if bad else "ok"])
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
