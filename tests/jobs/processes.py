"""Running programs as jobs, and seeing what they leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path


BIN = Path(sys.executable).parent


def job_environment() -> dict[str, str]:
    """This environment, without a word about any job."""
    about_jobs = ("GODWIT_", "TORCHELASTIC_", "OMPI_", "PMI", "SLURM_")
    plain = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return {name: value for name, value in os.environ.items() if not name.startswith(about_jobs) and name not in plain}


def run(*argv: str | Path, timeout: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its output and exit code are the caller's to judge."""
    return subprocess.run([str(word) for word in argv], env=job_environment() | environment, timeout=timeout,
                          capture_output=True, text=True)


def traces() -> set[str]:
    """What a job could leave on the machine: named shared memory, temporary files, sockets."""
    found = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}
    found |= {f"/tmp/{name}" for name in os.listdir("/tmp") if "godwit" in name.lower()}
    found |= {line.split()[-1] for line in open("/proc/net/unix") if "@godwit" in line}
    return found


def assert_no_more_than(before: set[str]) -> None:
    """What is there beyond `before` may belong to another job of this machine, but then it goes away."""
    limit = time.monotonic() + 5
    while not traces() <= before:
        assert time.monotonic() < limit, traces() - before
        time.sleep(0.05)
