"""`godwit profile`: runs a program and tells who called the functions of a library, how often, and the time.

    godwit profile --lib libopenblas -- python program.py

The dynamic loader loads godwit-audit.so into the program and all its children (LD_AUDIT), which counts and
samples; `records` reads what it wrote, `report` shows it.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Optional, Sequence

from .. import _native
from . import records

DEFAULT_HZ = 250
LEAST_FREE_BYTES = 256 << 20


@dataclass
class Profile:
    """What came out: the run's records, and how the program itself fared."""

    command: list[str]
    wanted: list[str]
    exit_code: int  # below 0: ended by that signal
    wall_s: float
    cpu_s: float  # of the program and the children that it waited for
    run: records.Run

    @property
    def counting_s(self) -> float:
        """Processor time that counting took: calls, by the cost that was measured at the start of each process."""
        return sum(binding.calls * process.call_ns * records.NS
                   for process in self.run.processes for binding in process.bindings)

    @property
    def sampling_s(self) -> float:
        return sum(process.sampling_s for process in self.run.processes)

    @property
    def call_ns(self) -> float:
        return max((process.call_ns for process in self.run.processes), default=0.0)

    @property
    def overhead(self) -> float:
        """As a share of the program's processor time."""
        return (self.counting_s + self.sampling_s) / self.cpu_s if self.cpu_s > 0 else 0.0


def audit_library() -> str:
    """Where godwit-audit.so is."""
    path = _native.companion("godwit-audit.so")
    if any(character in path for character in ": \t"):
        raise _native.Unsupported(f"the loader cannot take a path with a colon or a blank: '{path}'")
    return path


def _refuse(program: str) -> None:
    """Programs into which the loader puts nothing."""
    try:
        mode = os.stat(program).st_mode
        with open(program, "rb") as file:
            start = file.read(1 << 16)
    except OSError:
        return
    if mode & 0o6000 and os.geteuid() != 0:
        raise _native.Unsupported(f"'{program}' runs with another user's rights (setuid): the loader does not let "
                                  "anything be put into it")
    if start[:4] == b"\x7fELF" and b"ld-linux" not in start and b"ld-musl" not in start and b"interp" not in start:
        raise _native.Unsupported(f"'{program}' is linked statically: there are no bindings to count")


def profile(command: Sequence[str], libraries: Sequence[str], hz: int = DEFAULT_HZ,
            directory: Optional[str] = None) -> Profile:
    """Run `command` to its end and return what it and its children called in the libraries whose files' names
    begin with one of `libraries` (or are such a path), and where their time went.

    `hz` is how often the call stack is looked at per second of processor time; 0: never, calls are counted all the
    same. With `directory` the raw records are kept there.
    """
    command = list(command)
    names = list(libraries)
    if not command:
        raise _native.InvalidValue("no program is given")
    if not names or any(not name or ":" in name for name in names):
        raise _native.InvalidValue(f"which library? {names!r} (such as libopenblas, or libtorch_cpu)")
    names = [os.path.realpath(name) if os.sep in name else name for name in names]
    program = shutil.which(command[0])
    if program is None:
        raise FileNotFoundError(f"there is no program '{command[0]}'")
    _refuse(os.path.realpath(program))
    place = directory or tempfile.mkdtemp(prefix="godwit-profile-")
    os.makedirs(place, exist_ok=True)
    try:
        if os.listdir(place):
            raise _native.InvalidValue(f"the directory '{place}' is not empty")
        if shutil.disk_usage(place).free < LEAST_FREE_BYTES:
            raise _native.OutOfMemory(f"'{place}' has less than 256 MB of room; set TMPDIR to a directory that has more")
        environment = dict(os.environ)
        others = [path for path in environment.get("LD_AUDIT", "").split(":") if path]
        environment.update(LD_AUDIT=":".join([audit_library(), *others]), GODWIT_PROFILE_DIR=os.path.abspath(place),
                           GODWIT_PROFILE_LIBS=":".join(names), GODWIT_PROFILE_HZ=str(hz))
        code, wall_s, cpu_s = _run(program, command, environment)
        files = sorted(os.path.join(place, name) for name in os.listdir(place))
        return Profile(command, names, code, wall_s, cpu_s, records.gather(files))
    finally:
        if directory is None:
            shutil.rmtree(place, ignore_errors=True)


def _run(program: str, command: list[str], environment: dict[str, str]) -> tuple[int, float, float]:
    sys.stdout.flush()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    process = subprocess.Popen(command, executable=program, env=environment)
    # Ctrl-C is the program's: it has it from the terminal as we do, and we report what there is.
    old = signal.signal(signal.SIGINT, signal.SIG_IGN) if _in_main_thread() else None
    try:
        code = process.wait()
    finally:
        if old is not None:
            signal.signal(signal.SIGINT, old)
    wall_s = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return code, wall_s, (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def _in_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()
