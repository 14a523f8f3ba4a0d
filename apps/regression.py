"""regression.py - data-parallel regression with L-BFGS: the data are cut over the ranks, the parameters are everywhere.

    godwit run -n 4 apps/regression.py
    torchrun --nproc-per-node 4 apps/regression.py
    mpirun -n 4 python apps/regression.py
    python apps/regression.py                  the same alone, with all data in one process

The points lie on a damped oscillation, a exp(-b x) cos(c x) + d, with noise.  The loss function has two calls
of Allreduce more than that of a program for one process; the optimizer is PyTorch's own and knows nothing of ranks.
"""

import argparse
import sys

import torch
from torch import Tensor

from godwit.comm import COMM_WORLD as comm, MPI_SUM

NAMES = ("a  amplitude", "b  damping", "c  frequency", "d  offset")
TRUE = torch.tensor([1.5, 0.4, 5.0, 0.3], dtype=torch.float64)
START = torch.tensor([1.0, 0.1, 4.6, 0.0], dtype=torch.float64)
NOISE = 0.1


def model(x: Tensor, parameters: Tensor) -> Tensor:
    a, b, c, d = parameters
    return a * torch.exp(-b * x) * torch.cos(c * x) + d


def own_part(n_points: int) -> tuple[Tensor, Tensor]:
    """This rank's points.  All ranks draw all of them here, to have the same ones whatever their number."""
    generator = torch.Generator().manual_seed(2024)
    x = 4 * torch.rand(n_points, generator=generator, dtype=torch.float64)
    y = model(x, TRUE) + NOISE * torch.randn(n_points, generator=generator, dtype=torch.float64)
    mine = slice(n_points * comm.rank // comm.size, n_points * (comm.rank + 1) // comm.size)
    return x[mine], y[mine]


def loss_of_all(parameters: Tensor, x: Tensor, y: Tensor, n_points: int) -> Tensor:
    """Mean square over the points of all ranks.

    Each rank differentiates the sum, so what is differentiated is `size` times the
    loss; and the mean over the parameters of all ranks has a `size` below it.
    """
    parameters = comm.Allreduce(parameters, MPI_SUM) / comm.size
    own = torch.sum((model(x, parameters) - y)**2) / n_points
    return comm.Allreduce(own, MPI_SUM)


def fit(x: Tensor, y: Tensor, n_points: int, most: int) -> Tensor:
    parameters = START.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([parameters], max_iter=1, max_eval=25, tolerance_grad=0, tolerance_change=0,
                                  line_search_fn="strong_wolfe")

    def evaluate() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of_all(parameters, x, y, n_points)
        loss.backward()
        return loss

    say(f"{'iteration':>9}{'loss':>16}{'|gradient|':>14}")
    for iteration in range(most + 1):
        loss = evaluate().item()
        gradient = parameters.grad.norm().item()
        say(f"{iteration:>9}{loss:>16.10f}{gradient:>14.3e}")
        if gradient < 1e-8:
            break
        optimizer.step(evaluate)
    return parameters.detach()


def say(text: str) -> None:
    if comm.rank == 0:
        print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit a damped oscillation to points that are cut over the ranks.")
    parser.add_argument("--points", type=int, default=100_000, help="how many there are in all (default 100000)")
    parser.add_argument("--iterations", type=int, default=40, help="at most so many (default 40)")
    arguments = parser.parse_args()
    if arguments.points < 1 or arguments.iterations < 0:
        parser.error("--points: there must be at least one; --iterations: not below 0")
    torch.set_num_threads(1)  # there are ranks for that

    x, y = own_part(arguments.points)
    say(f"{arguments.points} points, {comm.size} rank(s); this one has {len(x)}\n")
    found = fit(x, y, arguments.points, arguments.iterations)

    say(f"\n{'parameter':<14}{'found':>12}{'true':>8}{'difference':>12}")
    for name, value, true in zip(NAMES, found.tolist(), TRUE.tolist()):
        say(f"{name:<14}{value:>12.6f}{true:>8.2f}{value - true:>12.1e}")

    # As whole numbers: equal means every bit.
    copies = comm.Allgather(found.view(torch.int64)[None], 0)
    if not (copies == copies[0]).all():
        sys.exit(f"rank {comm.rank}: the ranks' parameters differ: {comm.Allgather(found[None], 0).tolist()}")
    if not torch.allclose(found, TRUE, atol=0.05):
        sys.exit(f"rank {comm.rank}: these are not the true parameters; more points or iterations may help")
    say(f"\nFound; and the parameters of {comm.size} rank(s) are the same, bit by bit.")


if __name__ == "__main__":
    main()
