"""heat.py - what was it before?  A rod's first temperatures from its last ones, by gradients through the time steps.

    godwit run -n 4 apps/heat.py
    torchrun --nproc-per-node 4 apps/heat.py
    mpirun -n 4 python apps/heat.py
    python apps/heat.py                        the same alone, without a message

The rod is cut over the ranks.  In every time step neighbours exchange their outermost cells; in the backward pass
their gradients travel the other way.  The program first compares the gradient with that of one process that
has the whole rod, then lets L-BFGS look for the first state that leads to the last one, and draws what it found:
with matplotlib, where there is one, else in letters.
"""

import argparse
import sys
import time
from typing import Callable

import torch
from torch import Tensor

from godwit.comm import COMM_WORLD as comm, JoinDummies, MPI_SUM

FLOW = 0.4  # between two cells, in a time step; beyond 0.5 the explicit scheme is not stable
FROM_LEFT, FROM_RIGHT = 1, 2  # tags
CLOSE_ENOUGH = 1e-12


# ---- the rod ---------------------------------------------------------------------------------


def true_state(n_cells: int) -> Tensor:
    """Three warm places, two of them so close together that they soon look like one."""
    x = (torch.arange(n_cells) + 0.5) / n_cells

    def warm(where: float, width: float) -> Tensor:
        return torch.exp(-((x - where) / width)**2)

    return warm(0.22, 0.09) + 0.7 * warm(0.58, 0.05) + 0.9 * warm(0.73, 0.05)


def after(u: Tensor, n_steps: int, with_ends: Callable[[Tensor], Tensor]) -> Tensor:
    for _ in range(n_steps):
        around = with_ends(u)
        u = u + FLOW * (around[2:] - 2 * u + around[:-2])
    return u


def with_cold_ends(u: Tensor) -> Tensor:
    """A cell more on either side, for a process that has the whole rod; beyond its ends it is cold."""
    return torch.nn.functional.pad(u, (1, 1))


def with_neighbours(u: Tensor) -> Tensor:
    """A cell more on either side: the neighbours' outermost, or the cold beyond the rod."""
    left = right = torch.zeros(1)
    handles = []
    if comm.rank > 0:
        handles.append(comm.Isend(u[:1], comm.rank - 1, FROM_RIGHT))
    if comm.rank < comm.size - 1:
        handles.append(comm.Isend(u[-1:], comm.rank + 1, FROM_LEFT))
    if comm.rank > 0:
        left = comm.Recv(torch.empty(1), comm.rank - 1, FROM_LEFT)
    if comm.rank < comm.size - 1:
        right = comm.Recv(torch.empty(1), comm.rank + 1, FROM_RIGHT)
    sent = [comm.Wait(handle) for handle in handles]
    return JoinDummies(torch.cat([left, u, right]), sent)  # what comes next depends on the sending too


# ---- the gradient ------------------------------------------------------------------------------


class Problem:
    """Which first state leads to the last one?"""

    def __init__(self, n_cells: int, n_steps: int):
        self.n_cells, self.n_steps = n_cells, n_steps
        self.mine = slice(n_cells * comm.rank // comm.size, n_cells * (comm.rank + 1) // comm.size)
        self.truth = true_state(n_cells)
        self.last = after(self.truth, n_steps, with_cold_ends)

    def loss(self, first: Tensor) -> Tensor:
        """The sum of squares over all cells, each rank's own in parallel.

        L-BFGS wants to see the whole first state, so every rank has it.  The time
        steps, and all that autograd keeps of them, are cut over the ranks.
        """
        first = comm.Allreduce(first, MPI_SUM) / comm.size
        reached = after(first[self.mine], self.n_steps, with_neighbours)
        return comm.Allreduce(torch.sum((reached - self.last[self.mine])**2), MPI_SUM)

    def loss_alone(self, first: Tensor) -> Tensor:
        """The same in one process."""
        return torch.sum((after(first, self.n_steps, with_cold_ends) - self.last)**2)

    def largest_difference(self) -> float:
        """Of the gradients of both, anywhere, as a share of the largest entry."""
        anything = torch.rand(self.n_cells, generator=torch.Generator().manual_seed(7))
        ours, alone = (gradient_of(loss, anything) for loss in (self.loss, self.loss_alone))
        return ((ours - alone).abs().max() / alone.abs().max()).item()

    def error(self, state: Tensor) -> float:
        return ((state - self.truth).norm() / self.truth.norm()).item()


def gradient_of(loss: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    u = at.clone().requires_grad_()
    loss(u).backward()
    return u.grad


def recover(problem: Problem, n_iterations: int) -> tuple[Tensor, list[float]]:
    """The first state, and the loss at every look at it."""
    first = torch.zeros(problem.n_cells, requires_grad=True)
    optimizer = torch.optim.LBFGS([first], max_iter=n_iterations, tolerance_grad=0, tolerance_change=0,
                                  line_search_fn="strong_wolfe")
    losses: list[float] = []

    def evaluate() -> Tensor:
        optimizer.zero_grad()
        loss = problem.loss(first)
        loss.backward()
        if len(losses) % 5 == 0:
            report(loss)
        losses.append(loss.item())
        return loss

    def report(loss: Tensor) -> None:
        error = problem.error(first.detach())
        say(f"{len(losses):>10}{loss.item():>14.3e}{first.grad.norm().item():>14.3e}{100 * error:>11.2f} %"
            f"{time.perf_counter() - started:>9.1f} s")

    say(f"{'evaluation':>10}{'loss':>14}{'|gradient|':>14}{'off by':>13}{'time':>11}")
    started = time.perf_counter()
    optimizer.step(evaluate)
    evaluate()
    report(torch.tensor(losses[-1]))
    return first.detach(), losses


# ---- pictures --------------------------------------------------------------------------------------


def draw(path: str, problem: Problem, found: Tensor, losses: list[float]) -> None:
    """With matplotlib if it is there and works, else in letters."""
    curves = {"true": problem.truth.tolist(), "last": problem.last.tolist(), "recovered": found.tolist()}
    try:
        plot(path, curves, losses)
        say(f"\nThe picture is in {path}")
    except ImportError:
        say(f"\nWithout matplotlib, in letters instead of {path}:")
        draw_in_letters(curves, losses)
    except Exception as error:  # no reason to lose a result
        say(f"\nmatplotlib could not write {path} ({error}); so in letters:")
        draw_in_letters(curves, losses)


def plot(path: str, curves: dict[str, list[float]], losses: list[float]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 7), height_ratios=(3, 2), layout="constrained")
    above.plot(curves["true"], label="first state, true", color="0.6", linewidth=5)
    above.plot(curves["last"], label="last state", color="C0", linestyle="--")
    above.plot(curves["recovered"], label="first state, recovered", color="C3")
    above.set(xlabel="cell", ylabel="temperature", title=f"A rod on {comm.size} rank(s)")
    for rank in range(1, comm.size):
        above.axvline(len(curves["true"]) * rank // comm.size - 0.5, color="0.85", linewidth=1, zorder=0)
    above.legend()
    below.semilogy(losses, color="C3")
    below.set(xlabel="evaluation", ylabel="loss")
    figure.savefig(path)
    plt.close(figure)


def draw_in_letters(curves: dict[str, list[float]], losses: list[float]) -> None:
    letters = {"true": "o", "last": ".", "recovered": "x"}
    say(letter_chart([(letters[name], curve) for name, curve in curves.items()], "temperature over cells"))
    say("  " + ",  ".join(f"{letter} {name}" for name, letter in letters.items()) + "  (x hides o where they agree)\n")
    logs = [torch.tensor(loss).clamp(min=1e-300).log10().item() for loss in losses]
    say(letter_chart([("*", logs)], "log10 of the loss over evaluations", n_rows=8))


def letter_chart(curves: list[tuple[str, list[float]]], title: str, n_rows: int = 16, n_columns: int = 72) -> str:
    """Curves as rows of letters, later ones over earlier ones."""
    lowest = min(min(curve) for _, curve in curves)
    highest = max(max(curve) for _, curve in curves)
    height = (highest - lowest) or 1.0
    rows = [[" "] * n_columns for _ in range(n_rows)]
    for letter, curve in curves:
        for column in range(n_columns):
            begin, end = column * len(curve) // n_columns, (column + 1) * len(curve) // n_columns
            places = [round((highest - value) / height * (n_rows - 1)) for value in curve[begin:end + 1]]
            for row in range(min(places), max(places) + 1):
                rows[row][column] = letter
    labels = {0: f"{highest:.2f}", n_rows - 1: f"{lowest + 0.0:.2f}"}
    lines = [f"{labels.get(i, ''):>9} |{''.join(row).rstrip()}" for i, row in enumerate(rows)]
    return "\n".join([f"{'':>9}  {title}", *lines, f"{'':>9} +{'-' * n_columns}"])


# ---- the program -----------------------------------------------------------------------------------


def say(text: str) -> None:
    if comm.rank == 0:
        print(text, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Recover a rod's first temperatures from its last ones.")
    parser.add_argument("--cells", type=int, default=160, help="of the rod, over all ranks (default 160)")
    parser.add_argument("--steps", type=int, default=80, help="in time (default 80)")
    parser.add_argument("--iterations", type=int, default=30, help="of L-BFGS (default 30)")
    parser.add_argument("--output", default="heat.png", metavar="FILE", help="PNG, SVG or PDF (default heat.png)")
    given = parser.parse_args()
    if given.cells < comm.size:
        parser.error(f"--cells {given.cells}: every one of the {comm.size} ranks needs one")
    if given.steps < 1 or given.iterations < 1:
        parser.error("--steps and --iterations: there must be at least one")
    return given


def main() -> None:
    given = arguments()
    torch.set_num_threads(1)  # there are ranks for that
    torch.set_default_dtype(torch.float64)

    problem = Problem(given.cells, given.steps)
    say(f"A rod of {given.cells} cells on {comm.size} rank(s), {given.steps} time steps.")
    difference = problem.largest_difference()
    say(f"The gradient, and that of one process with the whole rod, differ by {difference:.1e} at most.\n")
    if difference > CLOSE_ENOUGH:
        sys.exit(f"rank {comm.rank}: the gradient is wrong")

    found, losses = recover(problem, given.iterations)
    if comm.rank == 0:
        draw(given.output, problem, found, losses)
    say(f"\nThe last state is {100 * problem.error(problem.last):.1f} % off the first one, "
        f"the recovered one {100 * problem.error(found):.1f} %. Done.")


if __name__ == "__main__":
    main()
