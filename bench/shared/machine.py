"""What every benchmark asks of the machine, and how it shows that it is at work."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


class CannotRun(Exception):
    pass


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def core_of(cpu: int) -> object:
    """Something that is equal for the threads of one core."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return cpu


def two_cores() -> list[int]:
    """Two processors we may use that are not threads of one core."""
    allowed = sorted(os.sched_getaffinity(0))
    for other in allowed[1:]:
        if core_of(allowed[0]) != core_of(other):
            return [allowed[0], other]
    raise CannotRun("needs two cores")


def processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def compile_with(compiler: str, directory: Path, sources: Sequence[str], program: Path) -> Path:
    """A peer's program, made anew if its sources, or a header beside them, are newer."""
    paths = [directory / source for source in sources]
    newest = max(path.stat().st_mtime for path in [*paths, *directory.glob("*.h")])
    if not program.exists() or program.stat().st_mtime < newest:
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-O3", "-std=gnu11", "-D_GNU_SOURCE", "-pthread", *map(str, paths), "-lm",
                        "-o", str(program)], check=True)
    return program
