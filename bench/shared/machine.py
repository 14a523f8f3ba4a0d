"""What every benchmark asks of the machine, and how it shows that it is at work."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


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


def kernel() -> str:
    """Its number, without what its builder added."""
    return platform.release().partition("-")[0]


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


def run_program(command: Sequence[str], limit_s: float) -> list[dict[str, Any]]:
    """What a program of ours measured: the lines of JSON that it prints."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"").decode(errors="replace")
        raise CannotRun(f"{command} took more than {limit_s} s; until then it said:\n{said}") from None
    if done.returncode != 0:
        raise CannotRun(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def busy_s() -> float:
    """Processor time that all processes of this machine have had, and that its host took from it."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_s() -> float:
    """Processor time that this process and those that it started have had."""
    return sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime
               for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def run_main(main: Callable[[], int]) -> None:
    """The end of every run.py: exit codes, and ended from outside it still cleans up."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        sys.exit(main())
    except CannotRun as error:
        progress("")
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
