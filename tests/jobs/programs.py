"""Programs of apps/ that are a directory: their modules within this process, and a job that is signalled while it trains."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Optional

from processes import job_environment


@contextmanager
def module_of(program: Path, name: str) -> Iterator[ModuleType]:
    """A module of a program, which goes again: other programs may have one of that name."""
    before = set(sys.modules)
    sys.path.insert(0, str(program))
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(program))
        for new in set(sys.modules) - before:
            if str(program) in (getattr(sys.modules[new], "__file__", None) or ""):
                del sys.modules[new]


def until_signalled(command: Sequence[str | Path], n: int, what: signal.Signals, rank: Optional[int],
                    **environment: str) -> tuple[str, int]:
    """Start a job, and when it has told of `n` epochs send a signal to one of its ranks, or to the job if None.

    Returns what it printed and its exit code."""
    job = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           env=job_environment() | environment)
    text = ""
    for text_line in job.stdout:
        text += text_line
        n -= bool(re.match(r"\[0\] +\d+ ", text_line))
        if n == 0:
            break
    os.kill(job.pid if rank is None else _pid_of(job.pid, rank), what)
    return text + job.communicate(timeout=60)[0], job.returncode


def _pid_of(launcher: int, rank: int) -> int:
    for pid in map(int, Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()):
        if f"GODWIT_RANK={rank}" in Path(f"/proc/{pid}/environ").read_text().split("\0"):
            return pid
    raise AssertionError(f"rank {rank} is not there")
