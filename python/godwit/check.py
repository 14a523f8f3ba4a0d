"""`godwit check`: what is here, what would be used and why, and whether it works.

It ends with a small job that really runs, so its last line is a fact and not a
guess.  Nothing here needs PyTorch or NumPy; where they are, they are asked how
they were built.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from typing import Callable, Optional

from . import __version__, _native

TRIAL_SECONDS = 60
TRIAL_PROGRAM = """
import godwit
world = godwit.init()
other = 1 - world.rank
godwit.send(other, b"from %d" % world.rank)
assert godwit.recv(other) == b"from %d" % other
godwit.barrier()
"""

MB = 1 << 20


class Report:
    """Prints sections of aligned lines, and counts the problems."""

    def __init__(self) -> None:
        self.problems = 0

    def section(self, title: str) -> None:
        print(f"\n{title}")

    def info(self, name: str, text: str) -> None:
        self._line("", name, text)

    def verdict(self, fine: bool, name: str, text: str) -> None:
        self.problems += not fine
        self._line("ok" if fine else "PROBLEM", name, text)

    def _line(self, mark: str, name: str, text: str) -> None:
        print(f"  {mark:<8} {name:<18} {text}".rstrip())


def _size(n_bytes: int) -> str:
    return f"{n_bytes / MB:,.0f} MB"


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found.group(1) if found else "unknown"


# ---- versions ------------------------------------------------------------------


def _torch_build(torch: object) -> list[str]:
    config = torch.__config__.show()  # type: ignore[attr-defined]
    flags = _first(r"CXX_FLAGS=\s*([^,]*)", config)
    wanted = [word for word in flags.split() if re.match(r"-(O|march|mavx|D_GLIBCXX|fopenmp)", word)]
    return [
        f"BLAS {_first(r'BLAS_INFO=([^,]*)', config)}, LAPACK {_first(r'LAPACK_INFO=([^,]*)', config)}, "
        f"CPU {_first(r'CPU capability usage: (.*)', config)}",
        f"{torch.get_num_threads()} threads, "  # type: ignore[attr-defined]
        f"flags {' '.join(dict.fromkeys(wanted)) or 'unknown'}",
    ]


def _numpy_build(numpy: object) -> list[str]:
    try:
        config = numpy.show_config(mode="dicts")  # type: ignore[attr-defined]
    except TypeError:  # before 1.26
        names = getattr(numpy.__config__, "blas_opt_info", {}).get("libraries", [])  # type: ignore[attr-defined]
        return [f"BLAS {' '.join(dict.fromkeys(names)) or 'unknown'}"]
    blas = config["Build Dependencies"]["blas"]
    return [f"BLAS {blas.get('name', 'unknown')} {blas.get('version', '')}".rstrip()]


def _library(report: Report, name: str, build: Callable[[object], list[str]]) -> None:
    try:
        module = __import__(name)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == name
        report.info(name, "not installed (not needed)" if missing else f"cannot be imported: {error}")
        return
    report.info(name, module.__version__)
    try:
        for line in build(module):
            report.info("", line)
    except Exception as error:  # how others describe themselves changes with their versions
        report.info("", f"does not say how it was built ({error})")


def _blas(report: Report) -> None:
    """The short form of `godwit backend list`: what can be switched to."""
    from .backend import libraries

    for i, library in enumerate(libraries()):
        threads = f"{library.threads} threads" if library.threads != 1 else "1 thread"
        report.info("" if i else "BLAS", f"{library.name} {library.version}, {threads}"
                                         + (f", {library.kernel}" if library.kernel else ""))


def _versions(report: Report) -> None:
    report.section("Versions")
    report.info("godwit", f"{__version__}, in {os.path.dirname(os.path.abspath(__file__))}")
    report.info("python", f"{platform.python_version()}, {sys.executable}")
    _library(report, "torch", _torch_build)
    _library(report, "numpy", _numpy_build)
    _blas(report)


# ---- the machine ---------------------------------------------------------------


def _memfd() -> Optional[str]:
    """Why a shared segment cannot be made, or None."""
    try:
        fd = os.memfd_create("godwit-check")
    except OSError as error:
        return str(error.strerror)
    try:
        os.posix_fallocate(fd, 0, MB)
    except OSError as error:
        return str(error.strerror)
    finally:
        os.close(fd)
    return None


def _memory_available() -> str:
    kilobytes = _first(r"MemAvailable:\s+(\d+)", _read("/proc/meminfo"))
    return _size(int(kilobytes) * 1024) if kilobytes.isdigit() else "unknown"


def _memory_limit() -> str:
    """The smallest limit on the way from this process's cgroup to the root."""
    limits = []
    for line in _read("/proc/self/cgroup").splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        root, name = (("/sys/fs/cgroup", "memory.max") if kinds == "" else
                      ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"))
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts) + 1):
            limits.append(_read(os.path.join(root, *parts[:depth], name)))
    numbers = [int(text) for text in limits if text.isdigit()]
    smallest = min(numbers, default=1 << 62)
    return _size(smallest) if smallest < 1 << 60 else "none"


def _nodes() -> str:
    base = "/sys/devices/system/node"
    names = sorted((name for name in (os.listdir(base) if os.path.isdir(base) else [])
                    if re.fullmatch(r"node\d+", name)), key=lambda name: int(name[4:]))
    lists = [f"{name[4:]}: CPUs {_read(f'{base}/{name}/cpulist')}" for name in names]
    return f"{len(lists)} ({'; '.join(lists)})" if lists else "unknown"


def _machine(report: Report) -> None:
    report.section("Machine")
    report.info("system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    report.info("CPUs", f"{len(os.sched_getaffinity(0))} for this process, of {os.cpu_count()}")
    report.info("NUMA nodes", _nodes())
    report.info("memory", f"{_memory_available()} available, cgroup limit {_memory_limit()}")

    report.section("Shared memory")
    problem = _memfd()
    report.verdict(problem is None, "memfd", "works" if problem is None else problem)
    if os.path.isdir("/dev/shm"):
        usage = shutil.disk_usage("/dev/shm")
        report.info("/dev/shm", f"{_size(usage.total)}, {_size(usage.free)} free")
    else:
        report.info("/dev/shm", "not there")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    report.info("open files", f"{soft} per process, can be raised to {hard}")


# ---- how a job would run --------------------------------------------------------


def _options(report: Report) -> None:
    report.section("Options")
    for name, help_text, value, problem, given in _native.options():
        if problem:
            report.verdict(False, name, problem)
        else:
            origin = "given" if given else "default" if value else "not given"
            report.info(name, f"{value or '-':<10} {origin:<10} {help_text}")


def _fabric(report: Report) -> None:
    report.section("This process would join")
    try:
        plan = _native.plan(None, None, None, None, None)
    except _native.Error as error:
        report.verdict(False, "world", str(error))
        return
    rank = "by order of arrival" if plan["rank"] < 0 else plan["rank"]
    report.verdict(True, "world", f"rank {rank} of {plan['size']}, {plan['nodes']} node(s)")
    report.info("fabric", plan["fabric"])
    report.info("because", plan["reason"])


def _plugin(kind: str) -> Optional[str]:
    """Where the library finds its plugin for an MPI: as src/fabric/mpi/plugin.c does."""
    maps = _read("/proc/self/maps")
    beside = os.path.dirname(_first(r"(/\S*/libgodwit\.so\S*)", maps))
    given = os.environ.get("GODWIT_PLUGINS")
    for directory in [given] if given else [beside, os.path.join(beside, "godwit")]:
        path = os.path.join(directory, f"godwit-{kind}.so")
        if os.access(path, os.R_OK):
            return path
    return None


def _mpis(report: Report) -> None:
    report.section("MPI (for several machines; not needed on one)")
    for kind in ("openmpi", "mpich"):
        program = f"mpirun.{kind}"
        plugin = os.path.basename(_plugin(kind) or "")
        report.info(f"plugin, {kind}", plugin or "not there: built only where that MPI's mpicc was found")
        path = shutil.which(program)
        if path is None:
            report.info(program, "not installed")
            continue
        try:
            answer = subprocess.run([path, "--version"], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, timeout=10).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            report.info(program, f"does not answer: {error}")
            continue
        report.info(program, _first(r"(\d+\.\d+\S*)", answer))


def _trial_environment() -> dict[str, str]:
    ours = ("GODWIT_JOB", "GODWIT_RANK", "GODWIT_SIZE")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    package_parent = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = [package_parent, environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    environment.setdefault("GODWIT_TIMEOUT", str(TRIAL_SECONDS // 2))
    return environment


def _trial(report: Report) -> None:
    report.section("Trial")
    argv = [sys.executable, "-m", "godwit", "run", "-n", "2", sys.executable, "-c", TRIAL_PROGRAM]
    start = time.monotonic()
    job = subprocess.Popen(argv, env=_trial_environment(), stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        output, _ = job.communicate(timeout=TRIAL_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        output, _ = job.communicate()
        output += f"still running after {TRIAL_SECONDS} s, so it was killed"
    seconds = time.monotonic() - start
    if job.returncode == 0:
        report.verdict(True, "job of 2", f"met, talked and ended in {seconds:.2f} s")
        return
    report.verdict(False, "job of 2", f"failed after {seconds:.2f} s with exit code {job.returncode}:")
    for line in output.splitlines():
        report.info("", line)


def main() -> int:
    report = Report()
    print("Godwit, checked on this machine")
    _versions(report)
    _machine(report)
    _options(report)
    _fabric(report)
    _mpis(report)
    _trial(report)
    if report.problems == 0:
        print("\nA job would run here.")
        return 0
    print(f"\nA job would not run here: {report.problems} problem(s) above.")
    return 1
