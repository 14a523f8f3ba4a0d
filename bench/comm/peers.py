"""Starting the peers: on which cores, with which settings, and what to do when one does not end.

Each runs as it comes, without tuning:
  - Everything runs on two cores that are not siblings, chosen here and inherited.  So Open MPI must not
    bind on its own (`--bind-to none`), and is told that the machine has two slots: with four processes it
    then knows by itself that they share cores, and yields while it waits.
  - MPICH yields after every thousand polls, whatever the number of processes.
  - Both start with MPI_Init, without support for threads; Godwit has no such mode.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from machine import CannotRun, compile_with

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RUN_LIMIT_S = 180
MPIS = {"openmpi": "Open MPI", "mpich": "MPICH"}
NAMES = {"godwit": "Godwit", **MPIS}

Process = tuple[list[str], dict[str, str]]  # arguments, and what to add to the environment


# -------------------------------------------------------------- the programs


def build_programs(godwit: Path) -> dict[str, Path]:
    """The programs there are, by peer; those left out are named in a line."""
    programs = {}
    if godwit.exists():
        programs["godwit"] = godwit
    else:
        print(f"Godwit left out: no {godwit} (configure with -Dbench=true)")
    for mpi, name in MPIS.items():
        if shutil.which(f"mpicc.{mpi}") and shutil.which(f"mpirun.{mpi}"):
            programs[mpi] = compile_with(f"mpicc.{mpi}", HERE, ["collectives.c", "shared.c", "mpi.c"],
                                         godwit.parent / f"collectives-{mpi}")
        else:
            print(f"{name} left out: no mpicc.{mpi} or no mpirun.{mpi}")
    return programs


def versions(programs: dict[str, Path]) -> dict[str, str]:
    """What each peer says of itself: the first word with a dot between digits."""
    found = {"godwit": (ROOT / "VERSION").read_text().strip()}
    for mpi in (mpi for mpi in MPIS if mpi in programs):
        text = subprocess.run([f"mpirun.{mpi}", "--version"], capture_output=True, text=True).stdout
        found[mpi] = next((word for word in text.split() if word[0].isdigit() and "." in word), "?")
    return found


# ------------------------------------------------------------------- running


def processes(peer: str, command: list[str], n_ranks: int) -> list[Process]:
    """What to start so that `n_ranks` processes run `command`."""
    if peer in ("godwit", "gloo"):
        job = f"bench-{os.getpid()}-{time.monotonic_ns()}"
        return [(command, {"GODWIT_JOB": job, "GODWIT_RANK": str(rank), "GODWIT_SIZE": str(n_ranks),
                           "GODWIT_TIMEOUT": "60"}) for rank in range(n_ranks)]
    if peer == "mpich":
        return [(["mpirun.mpich", "-n", str(n_ranks), *command], {})]
    settings = ["--bind-to", "none", "--host", "localhost:2", "--oversubscribe"]
    if os.geteuid() == 0:
        settings.append("--allow-run-as-root")
    return [(["mpirun.openmpi", *settings, "-n", str(n_ranks), *command], {})]


def stop(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """End what still runs: politely, so that an mpirun can end its ranks, then by force."""
    for child in children:
        if child.poll() is None:
            child.terminate()
    for child in children:
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def run_together(commands: Sequence[Process]) -> str:
    """Start all, wait for all, return what they printed."""
    children: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            for arguments, extra in commands:
                children.append(subprocess.Popen(arguments, env={**os.environ, **extra}, stdin=subprocess.DEVNULL,
                                                 stdout=out, stderr=err))
            end = time.monotonic() + RUN_LIMIT_S
            codes = [child.wait(max(0.0, end - time.monotonic())) for child in children]
        except subprocess.TimeoutExpired:
            raise CannotRun(f"{commands[0][0]} took more than {RUN_LIMIT_S} s") from None
        finally:
            stop(children)
        out.seek(0)
        err.seek(0)
        if any(codes):
            raise CannotRun(f"{commands[0][0]} ended with {codes}:\n{err.read().decode(errors='replace')}")
        return out.read().decode()


class Job:
    """Processes that run tensors.py, are told what to measure, and sleep in between.

    They are started once, since importing PyTorch takes seconds.  Each rank reads its orders from a pipe
    with a name, because an mpirun would pass its own input to one rank only; rank 0 prints the answers.
    When this process is gone, the pipes are closed and the ranks end.  Beside the pipes lies Godwit's package,
    for a Python that has none.
    """

    def __init__(self, peer: str, launcher: str, python: str, n_ranks: int) -> None:
        self.what = f"{peer} from Python with {n_ranks} ranks"
        self.directory = Path(tempfile.mkdtemp(prefix="godwit-bench-"))
        self.children: list[subprocess.Popen[bytes]] = []
        self.orders: list[int] = []
        self.errors = tempfile.TemporaryFile()
        self.answers, answers = os.pipe()
        self.buffer = b""
        command = [python, str(HERE / "tensors.py"), peer, str(n_ranks), str(self.directory)]
        try:
            if (package := importlib.util.find_spec("godwit")) is not None:
                (self.directory / "godwit").symlink_to(package.submodule_search_locations[0])
            for rank in range(n_ranks):
                os.mkfifo(self.directory / str(rank))
                # For reading too, so that opening does not wait for the rank.
                self.orders.append(os.open(self.directory / str(rank), os.O_RDWR | os.O_CLOEXEC))
            for arguments, extra in processes(launcher, command, n_ranks):
                self.children.append(subprocess.Popen(arguments, env={**os.environ, **extra}, stdout=answers,
                                                      stdin=subprocess.DEVNULL, stderr=self.errors))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(answers)

    def answer(self, limit_s: float = RUN_LIMIT_S) -> dict[str, Any]:
        """The next line of JSON that rank 0 prints."""
        end = time.monotonic() + limit_s
        while True:
            line, newline, rest = self.buffer.partition(b"\n")
            if newline:
                self.buffer = rest
                if line.startswith(b"{"):
                    return json.loads(line)
                continue
            ready, _, _ = select.select([self.answers], [], [], max(0.0, min(0.2, end - time.monotonic())))
            more = os.read(self.answers, 65536) if ready else None
            if more:
                self.buffer += more
            elif more == b"" or any(child.poll() for child in self.children):
                raise CannotRun(f"{self.what} failed:\n{self.error_text()}")
            elif time.monotonic() > end:
                raise CannotRun(f"{self.what} took more than {limit_s:.0f} s:\n{self.error_text()}")

    def order(self, text: str) -> dict[str, Any]:
        for pipe in self.orders:
            os.write(pipe, text.encode() + b"\n")
        return self.answer()

    def error_text(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def close(self) -> None:
        for pipe in self.orders:
            with contextlib.suppress(OSError):
                os.write(pipe, b"end\n")
            os.close(pipe)
        deadline = time.monotonic() + 10
        for child in self.children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, deadline - time.monotonic()))
        stop(self.children)
        os.close(self.answers)
        self.errors.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def end_when_told() -> None:
    """Ended from outside we must still end what we started."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
