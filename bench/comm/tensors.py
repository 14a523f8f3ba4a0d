"""One rank of a job that measures collectives from Python.  peers.Job starts it and tells it what to do.

    tensors.py godwit|godwit-there|gloo|mpi4torch RANKS DIRECTORY

godwit-there is Godwit too, with the Python and the PyTorch that mpi4torch has.

Orders come as lines from the pipe DIRECTORY/<rank>: `KIND DOUBLES SECONDS REPEATS`, or `end`.
Rank 0 prints a line of JSON when it is ready and one for each order.  A peer that cannot be used says so
in its first line: {"left_out": "why"}.

  forward  Godwit, mpi4torch: y = Allreduce(x, MPI_SUM), where x requires a gradient, so that autograd
           takes part and y is new memory.  gloo: all_reduce(x) in place and without autograd: less work.
  copied   gloo only: y = x.clone(), then all_reduce(y): still without autograd, but x is kept.
  both     the same, then y.backward(g), the gradient of x being a new tensor each time.

Values, and gradients, are checked at the first order of a size.  Then it goes as in collectives.c: calls
to warm up, repeats that begin together and whose calls follow one another; the slowest rank counts.
"""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

LEAST_CALLS = 2
MOST_CALLS = 1_000_000


class MpiStyle:
    """Godwit, and mpi4torch, which has the same names."""

    can_differentiate = True

    def __init__(self, module: str) -> None:
        self.mpi = importlib.import_module(module)
        self.comm = self.mpi.COMM_WORLD
        self.rank, self.size = self.comm.rank, self.comm.size

    def sum(self, x):
        return self.comm.Allreduce(x, self.mpi.MPI_SUM)

    def greatest(self, x):
        return self.comm.Allreduce(x, self.mpi.MPI_MAX)

    def close(self) -> None:
        pass


class Gloo:
    can_differentiate = False

    def __init__(self, directory: str) -> None:
        import torch.distributed

        if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
            raise ImportError("this PyTorch has no gloo")
        self.dist = torch.distributed
        self.rank, self.size = int(os.environ["GODWIT_RANK"]), int(os.environ["GODWIT_SIZE"])
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self.dist.init_process_group("gloo", init_method=f"file://{directory}/gloo", rank=self.rank,
                                     world_size=self.size)

    def sum(self, x):
        self.dist.all_reduce(x)
        return x

    def greatest(self, x):
        self.dist.all_reduce(x, op=self.dist.ReduceOp.MAX)
        return x

    def close(self) -> None:
        self.dist.destroy_process_group()


Peer = MpiStyle | Gloo


def inputs(peer: Peer, n: int):
    """Our x, and what all of them sum up to."""
    counted = torch.arange(n, dtype=torch.float64) % 1000 + 1
    x = counted * (peer.rank + 1)
    return x.requires_grad_(peer.can_differentiate), counted * (peer.size * (peer.size + 1) // 2)


@functools.cache
def check(peer: Peer, n: int) -> None:
    """Once a job for each size: it takes longer than many calls."""
    x, expected = inputs(peer, n)
    y = peer.sum(x)
    if not torch.equal(y.detach(), expected):
        raise SystemExit(f"rank {peer.rank}: wrong sum of {n} doubles")
    if peer.can_differentiate:
        if not y.requires_grad:
            raise SystemExit(f"rank {peer.rank}: autograd took no part")
        y.backward(inputs(peer, n)[0].detach())
        if not torch.equal(x.grad, expected):
            raise SystemExit(f"rank {peer.rank}: wrong gradient of a sum of {n} doubles")


def action(peer: Peer, kind: str, n: int) -> Callable[[], None]:
    x = torch.full((n,), 0.0, dtype=torch.float64)  # stays finite when gloo sums in place
    if kind == "forward":
        x.requires_grad_(peer.can_differentiate)

        def forward() -> None:
            peer.sum(x)
        return forward

    if kind == "copied":
        def copied() -> None:
            peer.sum(x.clone())
        return copied

    x.requires_grad_()
    g = torch.full((n,), 1.0, dtype=torch.float64)

    def both() -> None:
        x.grad = None
        peer.sum(x).backward(g)
    return both


def slowest(peer: Peer, seconds: float) -> float:
    return peer.greatest(torch.tensor([seconds], dtype=torch.float64)).item()


def time_calls(peer: Peer, call: Callable[[], None], n_calls: int) -> float:
    """Seconds of the slowest rank, told to all."""
    slowest(peer, 0.0)  # a barrier, which mpi4torch lacks
    start = time.perf_counter()
    for _ in range(n_calls):
        call()
    return slowest(peer, time.perf_counter() - start)


def calls_in(peer: Peer, call: Callable[[], None], seconds: float) -> int:
    """As in collectives.c."""
    n_calls = 1
    while True:
        took = time_calls(peer, call, n_calls)
        if seconds / 4 < took < seconds:
            took = min(took, time_calls(peer, call, n_calls))
        if took > seconds / 4 or n_calls > MOST_CALLS // 4:
            return min(max(math.ceil(seconds / took * n_calls), LEAST_CALLS), MOST_CALLS)
        n_calls *= 4


def measure(peer: Peer, kind: str, n: int, seconds: float, repeats: int) -> dict[str, float]:
    check(peer, n)
    call = action(peer, kind, n)
    n_calls = calls_in(peer, call, seconds)
    us = [time_calls(peer, call, n_calls) / n_calls * 1e6 for _ in range(repeats)]
    return {"us": median(us), "least_us": min(us), "greatest_us": max(us), "calls": n_calls}


def say(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)


def main() -> None:
    name, n_ranks, directory = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    sys.path.append(directory)  # where Godwit is, for a Python that has none
    try:
        peer: Peer = Gloo(directory) if name == "gloo" else MpiStyle(
            "mpi4torch" if name == "mpi4torch" else "godwit.comm")
    except (ImportError, AttributeError) as error:
        say({"left_out": str(error)})
        return
    if peer.size != n_ranks:
        raise SystemExit(f"{name} sees {peer.size} ranks, not {n_ranks}")
    if peer.rank == 0:
        say({"torch": torch.__version__, "python": sys.version.split()[0]})
    with open(Path(directory) / str(peer.rank)) as orders:
        for line in iter(orders.readline, "end\n"):
            if line == "":
                return
            kind, n, seconds, repeats = line.split()
            result = measure(peer, kind, int(n), float(seconds), int(repeats))
            if peer.rank == 0:
                say(result)
    peer.close()


try:
    import torch
except ImportError as error:
    say({"left_out": str(error)})
    sys.exit(0)
if __name__ == "__main__":
    main()
