"""Ranks that do not make the same call: all of them hear of it, and who it was."""

from __future__ import annotations

import sys

import pytest
from processes import BIN, run
from test_mpi import LAUNCHERS

# Rank 1 of 3 does something else.  What the others do, what it does, what everybody's error says.
DISAGREE = {
    "another shape": ("c.Allreduce(x)", "c.Allreduce(x[:3])", "rank 1: Allreduce float32[3]"),
    "another number of axes": ("c.Allreduce(x)", "c.Allreduce(x.view(2, 2))", "float32[2, 2]"),
    "another type": ("c.Allreduce(x)", "c.Allreduce(x.double())", "rank 1: Allreduce float64[4]"),
    "another operation": ("c.Allreduce(x)", "c.Allreduce(x, MPI_MAX)", "rank 1: Allreduce float32[4], MAX"),
    "another root": ("c.Bcast_(x, 0)", "c.Bcast_(x, 2)", "rank 1: Bcast float32[4], root 2"),
    "another function": ("c.Allreduce(x)", "c.Allgather(x, 0)", "rank 1 calls Allgather"),
    "another order": ("(c.Bcast_(x, 0), c.Barrier())", "(c.Barrier(), c.Bcast_(x, 0))", "rank 1 calls Barrier"),
    "another axis": ("c.Allgather(y, 0)", "c.Allgather(y, 1)", "rank 1: Allgather float32[2, 2], axis 1"),
    "other lengths": ("c.Allgather(y, 0)", "c.Allgather(y.view(1, 4), 0)", "rank 1: Allgather float32[1, 4]"),
    "wrong sums": ("c.Scatter(torch.zeros(6), 0, 2, 0)", "c.Scatter(None, 0, 3, 0)", "rank 1: Scatter, axis 0, gets 3"),
    "a large one": ("c.Allreduce(big)", "c.Allreduce(big[1:])", "rank 1: Allreduce float32[299999]"),
}

# After these the communicator cannot go on.
FATAL = {
    "one rank missing": ("c.Allreduce(x)", "time.sleep(4)", "TimedOut", "rank 1 did not come", [0, 2]),
    "a message instead": ("c.Allreduce(x)", "c.Recv(x, 0, 5)", "TimedOut", "rank ", [0, 1, 2]),
    "one rank ends": ("c.Allreduce(x)", "sys.exit(0)", "RankLost", "rank 1", [0, 2]),
}

HEAD = """
import sys, time, torch
from godwit.comm import COMM_WORLD as c, MPI_MAX
import godwit
x, y, big = torch.ones(4), torch.ones(2, 2), torch.ones(300000)
c.Barrier()

def attempt(name, mine, theirs):
    try:
        mine() if c.rank == 1 else theirs()
    except godwit.Error as error:
        text = str(error).replace("\\n", " | ")
        print(f"{name}: rank {c.rank}: {type(error).__name__}: {text}", flush=True)
"""

FABRICS = {"shm": [BIN / "godwit", "run", "-n", "3"]} | {
    name: [*launcher, "-n", "3"] for name, launcher in LAUNCHERS.items()}


def lines_of(fabric, path, limit):
    done = run(*FABRICS[fabric], sys.executable, path, GODWIT_TIMEOUT=limit, GODWIT_NODE_SIZE="1", OMP_NUM_THREADS="1",
               timeout=100)
    return done.stdout.splitlines(), done.stdout + done.stderr


def assert_heard(lines, everything, name, rank, error, words):
    said = [line for line in lines if f"{name}: rank {rank}: {error}" in line]
    assert said and words in said[0], (name, rank, everything)


@pytest.mark.parametrize("fabric", FABRICS)
def test_every_rank_hears_who_called_what_and_goes_on(fabric, program):
    text = HEAD + "".join(f"""
attempt({name!r}, lambda: {mine}, lambda: {theirs})
c.Barrier() if {name != "another order"} else None
""" for name, (theirs, mine, _) in DISAGREE.items()) + 'print(f"rank {c.rank} sums {c.Allreduce(x)[0]}", flush=True)\n'
    lines, everything = lines_of(fabric, program(text), "60")
    for rank in range(3):
        for name, (_, _, words) in DISAGREE.items():
            assert_heard(lines, everything, name, rank, "RanksDisagree", words)
            assert_heard(lines, everything, name, rank, "RanksDisagree", "rank 1 is at program.py:")
        assert f"rank {rank} sums 3.0" in everything


@pytest.mark.parametrize("name", FATAL)
@pytest.mark.parametrize("fabric", FABRICS)
def test_nobody_waits_for_ever_for_a_rank_that_does_something_else(fabric, name, program):
    theirs, mine, error, words, complaining = FATAL[name]
    text = HEAD + f"""
attempt({name!r}, lambda: {mine}, lambda: {theirs})
time.sleep(1.5)  # so that nobody's leaving is seen before the time limit
"""
    lines, everything = lines_of(fabric, program(text), "3" if error == "TimedOut" else "60")
    for rank in complaining:
        assert_heard(lines, everything, name, rank, error, words)
