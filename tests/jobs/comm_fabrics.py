"""The ways in which a test's job can be started: shared memory, Open MPI, MPICH."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import BIN, run

LAUNCHERS = {
    "shm": [],
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
    "mpich": ["mpirun.mpich"],
}


def run_job(fabric: str, n: int, program: Path, *arguments: str, timeout: float = 120,
            **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a job of `n` ranks.  With MPI every rank is a node of its own, so that MPI does the work."""
    launcher = LAUNCHERS[fabric]
    environment = {"GODWIT_TIMEOUT": "60", "OMP_NUM_THREADS": "1", **environment}
    if not launcher:
        return run(BIN / "godwit", "run", "-n", str(n), program, *arguments, timeout=timeout, **environment)
    if shutil.which(launcher[0]) is None:
        pytest.skip(f"{launcher[0]} is not installed")
    return run(*launcher, "-n", str(n), sys.executable, program, *arguments, timeout=timeout,
               **{"GODWIT_NODE_SIZE": "1", **environment})
