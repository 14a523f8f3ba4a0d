"""A program: every function of godwit.comm inside torch.jit.script and torch.compile gives what it gives outside.

Arguments: "script", or a backend of torch.compile.  Prints "passed WHAT" from each rank.
"""

from __future__ import annotations

import sys
import warnings

import torch
from comm_functions import everything, everything_in_place, exchange, halo

import godwit.comm
from godwit.comm import COMM_WORLD as comm

rank, size = comm.rank, comm.size

# What is compiled with each; inductor takes its time for every function.
BACKENDS = {"aot_eager": ["everything", "everything_in_place", "exchange", "halo"], "inductor": ["exchange"]}


def outcome(function):
    x = (torch.arange(3, dtype=torch.float64) + 1 + rank).requires_grad_()
    y = function(x, comm)
    (y * (rank + 1)).sum().backward()
    return y.detach(), x.grad


def compare(name: str, function, plain) -> None:
    expected = outcome(plain)
    for _ in range(3):  # TorchScript optimizes after it has looked on twice
        for got, wanted in zip(outcome(function), expected):
            torch.testing.assert_close(got, wanted)
    comm.Barrier()
    sys.stdout.write(f"passed {name}\n")
    sys.stdout.flush()


class Layer(torch.nn.Module):
    """A communicator may be an attribute of a scripted module."""

    def __init__(self):
        super().__init__()
        self.comm = comm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.comm.Allreduce(x * x, godwit.comm.MPI_SUM)


def check_order(backend: str) -> None:
    """Calls with the same arguments, calls whose results nobody uses, and barriers all stay, in their order."""
    log = []
    native = comm._native

    class Watched:
        def __getattr__(self, name):
            def call(*arguments):
                log.append((name, *arguments[:3]))
                return getattr(native, name)(*arguments)
            return call if callable(getattr(native, name)) else getattr(native, name)

    def busy(x, comm):
        y = comm.Allreduce(x) + comm.Allreduce(x, 3)
        comm.Allreduce(x)
        y = y * comm.Allgather(x, 0).sum()
        y = y + comm.Scan(x)
        y = y + comm.Reduce_(x * 2, 2, 0) + comm.Bcast_(x * 3, 0)
        comm.Barrier()
        comm.Gather(x, 0, 0)
        return y * comm.Reduce_scatter(torch.cat([x] * size), 2, 0, 3)

    def calls(function):
        log.clear()
        comm._native = Watched()
        try:
            outcome(function)
        finally:
            comm._native = native
        # The eager functions may use `call` where the compiled ones use `exchange`.
        return [entry[1:] if entry[0] in ("call", "exchange") else entry[0] for entry in log]

    outcome(busy)
    compiled = torch.compile(busy, fullgraph=True, backend=backend)
    outcome(compiled)
    forward = calls(busy), calls(compiled)
    n = 10  # calls of the forward pass
    assert forward[0][:n] == forward[1][:n], forward
    assert len(forward[1]) >= len(forward[0]), forward
    sys.stdout.write("passed order\n")


def main(how: str) -> int:
    warnings.simplefilter("ignore", DeprecationWarning)
    functions = {f.__name__: f for f in (everything, everything_in_place, exchange, halo)}
    if how == "script":
        for name, function in functions.items():
            compare(f"script {name}", torch.jit.script(function), function)
        layer = torch.jit.script(Layer())
        compare("script module", lambda x, comm: layer(x), lambda x, comm: Layer()(x))
        return 0
    for name in BACKENDS[how]:
        compare(f"{how} {name}", torch.compile(functions[name], fullgraph=True, backend=how), functions[name])
    check_order(how)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
