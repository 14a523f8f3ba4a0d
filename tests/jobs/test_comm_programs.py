"""Random programs of collectives and messages against what a single process computes.

GODWIT_RANDOM_PROGRAMS says how many in all; `make test-programs` runs 1,000.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from processes import BIN, run
from test_mpi import mpi, mpirun  # noqa: F401  (mpi is a fixture)

PROGRAM = Path(__file__).with_name("comm_programs.py")
N_PROGRAMS = int(os.environ.get("GODWIT_RANDOM_PROGRAMS", "100"))
RANKS = [2, 3, 4, 5]


@pytest.mark.timeout(60 + N_PROGRAMS)
@pytest.mark.parametrize("n", RANKS)
def test_random_programs_on_shared_memory(n, leaves_nothing):
    each = N_PROGRAMS // len(RANKS)
    done = run(BIN / "godwit", "run", "-n", str(n), sys.executable, PROGRAM, str(1000 * n), str(each),
               timeout=60 + N_PROGRAMS, GODWIT_TIMEOUT="60", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{each} programs from seed {1000 * n} with {n} ranks: all as expected" in done.stdout


@pytest.mark.parametrize("node_size", [1, 2])
def test_random_programs_by_mpi(mpi, node_size):  # noqa: F811
    done = mpirun(mpi, 3, sys.executable, PROGRAM, "77000", "10", "--close", GODWIT_NODE_SIZE=str(node_size),
                  GODWIT_TIMEOUT="60", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 programs from seed 77000 with 3 ranks: all as expected" in done.stdout
