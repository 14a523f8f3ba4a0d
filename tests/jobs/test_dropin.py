"""A program written for mpi4torch runs unchanged: on shared memory, and under both MPIs' launchers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from processes import BIN, run
from test_mpi import mpi, mpi4py_path, mpirun  # noqa: F401  a fixture, and what it is for

PROGRAM = Path(__file__).with_name("mpi4torch_program.py")
RUN = (BIN / "godwit", "run", "--as", "mpi4torch")


def assert_right(done: subprocess.CompletedProcess[str], n: int) -> None:
    told = re.findall(rf"rank (\d+) of {n}: (\d+) comparisons, 0 wrong", done.stdout)
    assert sorted(int(rank) for rank, _ in told) == list(range(n)), done.stdout + done.stderr
    assert {count for _, count in told} != {"0"}
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_a_program_for_mpi4torch_runs_unchanged(n):
    assert_right(run(*RUN, "-n", str(n), PROGRAM), n)


@pytest.mark.parametrize("n", [2, 4])
def test_a_program_for_mpi4torch_runs_unchanged_under_mpirun(mpi, n):  # noqa: F811
    """With mpi4py beside it, whose communicators it takes."""
    assert_right(mpirun(mpi, n, *RUN, PROGRAM, PYTHONPATH=mpi4py_path(mpi)), n)
