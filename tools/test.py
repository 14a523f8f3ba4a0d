"""test.py - runs every test of the tree, one stage after the other, and counts.

    tools/test.py [--list] [stage ...]        without stages: all of them but `stress` and `checkpoints`

Some stages run beside each other. Each stage writes a log under build/test-logs/ and has a time limit; running past it is a failure,
and so is a stage in which no test ran. The last line printed is `N passed, N failed` (and
`, N skipped`) over everything, and the exit code is 0 only if nothing failed.

Tests are counted one by one: the cases inside a C test program (they speak TAP, meson writes them
down as JUnit), the cases of pytest, and each fuzz target. `make test` and its relatives call this after tools/setup.sh.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
LOGS = BUILD / "test-logs"
VENV_BIN = ROOT / ".venv" / "bin"
DEBIAN_PYTHON = "/usr/bin/python3"
LOG_TAIL_LINES = 40
FUZZ_SECONDS = "20"  # for all targets together
STRESS_AT_ONCE = 5  # jobs, which shall disturb each other
TEST_LIMIT = "--timeout=120"  # of pytest-timeout: one test that hangs shows where, and the others still run


class StageFailed(Exception):
    """A stage that could not run to its end; the text says why."""


@dataclass
class Outcome:
    """What a stage's tests came to. `failed` and `skipped` hold names, for the summary."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def add_junit(self, path: Path) -> set[str]:
        """Count the cases of a JUnit file; return the suites in which one failed."""
        suites_failed = set()
        for suite in ElementTree.parse(path).iter("testsuite"):
            for case in suite.iter("testcase"):
                name = case_name(suite.get("name") or "", case)
                if case.find("failure") is not None or case.find("error") is not None:
                    self.failed.append(name)
                    suites_failed.add(suite.get("name"))
                elif case.find("skipped") is not None:
                    self.skipped.append(name)
                else:
                    self.passed += 1
        return suites_failed


def case_name(suite: str, case: ElementTree.Element) -> str:
    """`hash: a_key_put_twice_is_there_once`, from meson's or from pytest's spelling."""
    where = suite if ":" in suite else case.get("classname") or suite
    return f"{where.rpartition(':')[2]}: {re.sub(r'^[0-9]+ - ', '', case.get('name') or '')}"


class Shell:
    """Runs the commands of one stage: output to its log, all within one time limit."""

    def __init__(self, log: Path, limit_s: float):
        self.log = log
        self.limit_s = limit_s
        self.ends = time.monotonic() + limit_s
        self.process: subprocess.Popen | None = None  # the one that runs, or ran last

    def run(self, *command: str | Path, env: dict[str, str] | None = None) -> int:
        """Run a command to its end and return its exit code."""
        argv = [str(word) for word in command]
        with open(self.log, "a") as log:
            print("$", *argv, file=log, flush=True)
            self.process = process = subprocess.Popen(
                argv, cwd=ROOT, env=os.environ | {"CC": "gcc"} | (env or {}), stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return process.wait(max(0.0, self.ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise StageFailed(f"not done within {self.limit_s:.0f} s") from None
        finally:
            end_session(process)

    def note(self, *lines: str) -> None:
        with open(self.log, "a") as log:
            print(*lines, sep="\n", file=log)

    def must(self, *command: str | Path, env: dict[str, str] | None = None) -> None:
        code = self.run(*command, env=env)
        if code != 0:
            raise StageFailed(f"{Path(command[0]).name} {command[1]} ended with code {code}")


def end_session(process: subprocess.Popen) -> None:
    """Leave no process of a command behind, however it ended."""
    for signal_number, patience_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        if process.poll() is not None:
            signal_number = signal.SIGKILL
        try:
            os.killpg(process.pid, signal_number)
            process.wait(patience_s)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


# --- stages -------------------------------------------------------------------------------------


def meson_build(shell: Shell, name: str, *options: str, cc: str = "gcc") -> Path:
    """Configure (anew if need be) and compile build/<name>, with warnings as errors."""
    build = BUILD / name
    options = ("--werror", "-Dtests=enabled", *options)
    known = build / "meson-private" / "coredata.dat"
    if known.exists() and shell.run("meson", "setup", "--reconfigure", build, *options, env={"CC": cc}) != 0:
        shutil.rmtree(build)  # another meson's, or a compiler that is gone
    if not known.exists():
        shell.must("meson", "setup", build, *options, env={"CC": cc})
    shell.must("meson", "compile", "-C", build)
    return build


def unit_tests(shell: Shell, name: str, *options: str, env: dict[str, str] | None = None,
               select: tuple[str, ...] = (), at_once: int = os.cpu_count() or 1) -> Outcome:
    """Build, and run the tests that `select` (arguments of meson test) says, or the usual ones."""
    build = meson_build(shell, name, *options)
    logs = build / "meson-logs"
    for old in logs.glob("testlog*"):
        old.unlink()
    outcome = Outcome()
    code = 0
    try:
        code = shell.run("meson", "test", "-C", build, "--no-rebuild",
                         "--num-processes", str(at_once), *select, env=env)
    except StageFailed as reason:  # meson has still written down what was done by then
        outcome.failed.append(str(reason))
    if (logs / "testlog.junit.xml").exists():
        suites_failed = outcome.add_junit(logs / "testlog.junit.xml")
        # A program that crashed or hung may have no failed case to show for it.
        for line in (logs / "testlog.json").read_text().splitlines():
            test = json.loads(line)
            program = test["name"].rpartition(":")[2].strip()
            if test["result"] in ("OK", "SKIP", "EXPECTEDFAIL"):
                continue
            if not any(suite.rpartition(":")[2] == program for suite in suites_failed):
                outcome.failed.append(f"{program}: {test['result']}")
            said = [line for line in test.get("stdout", "").splitlines() if not line.startswith("ok ")]
            shell.note(f"what {program} printed:", *said, test.get("stderr", ""))
    if code != 0 and not outcome.failed:
        outcome.failed.append(f"meson test: ended with code {code}")
    return outcome


def unit(shell: Shell) -> Outcome:
    return unit_tests(shell, "unit", "-Dpython=enabled", "-Dbench=true")


def stress(shell: Shell) -> Outcome:
    """All fabrics x processes x node sizes x threads of tests/params, some at a time."""
    seconds = os.environ.get("GODWIT_STRESS_SECONDS", "60")
    return unit_tests(shell, "unit", "-Dpython=enabled", "-Dbench=true",
                      select=("--suite", "stress", f"--test-args=--seconds={seconds}"), at_once=STRESS_AT_ONCE)


def checkpoints(shell: Shell) -> Outcome:
    """Saves that are killed, GODWIT_KILLS times; the log has what was met."""
    return unit_tests(shell, "unit", "-Dpython=enabled", "-Dbench=true", select=("killed-saves",))


def asan(shell: Shell) -> Outcome:
    return unit_tests(
        shell, "asan", "-Dpython=disabled", "-Dbuildtype=debugoptimized", "-Db_ndebug=false",
        "-Db_sanitize=address,undefined", "-Db_lundef=false")  # meson sets ASAN_OPTIONS and UBSAN_OPTIONS well


def tsan(shell: Shell) -> Outcome:
    return unit_tests(
        shell, "tsan", "-Dpython=disabled", "-Dbuildtype=debugoptimized", "-Db_ndebug=false",
        "-Db_sanitize=thread", "-Db_lundef=false",
        env={"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"},
        select=("--no-suite", "sim"))  # which has one thread


def warnings(shell: Shell) -> Outcome:
    """Everything there is compiles with either compiler; one test per compiler."""
    outcome = Outcome()
    for cc, name in (("gcc", "unit"), ("clang", "clang")):
        try:
            meson_build(shell, name, "-Dpython=enabled", "-Dbench=true", cc=cc)
            outcome.passed += 1
        except StageFailed as reason:
            outcome.failed.append(f"{cc} builds the tree without a warning: {reason}")
    return outcome


def fuzz(shell: Shell) -> Outcome:
    """A short look at every decoder; one test per target. `make fuzz` looks longer."""
    report = LOGS / "fuzz.xml"
    report.unlink(missing_ok=True)
    code = shell.run(VENV_BIN / "python", "tools/fuzz.py", "--seconds", FUZZ_SECONDS, "--junit", report)
    outcome = Outcome()
    if report.exists():
        outcome.add_junit(report)
    if code != 0 and not outcome.failed:
        outcome.failed.append(f"fuzz.py: ended with code {code}")
    return outcome


def pytest(shell: Shell, name: str, python: str | Path, tests: str, *options: str,
           env: dict[str, str] | None = None) -> Outcome:
    report = LOGS / f"{name}.xml"
    report.unlink(missing_ok=True)
    code = shell.run(python, "-m", "pytest", "-v", "-ra", "--durations=10", "-p", "no:cacheprovider",
                     f"--junitxml={report}", *options, tests, env=env)
    outcome = Outcome()
    if report.exists():
        outcome.add_junit(report)
    if code not in (0, 5) and not outcome.failed:  # 5: no test found, which the caller sees
        outcome.failed.append(f"pytest {tests}: ended with code {code}")
    return outcome


def python(shell: Shell) -> Outcome:
    return pytest(shell, "python", VENV_BIN / "python", "tests/python", TEST_LIMIT)


def jobs(shell: Shell) -> Outcome:
    return pytest(shell, "jobs", VENV_BIN / "python", "tests/jobs", TEST_LIMIT)


def debian(shell: Shell) -> Outcome:
    """The compiled file that .venv uses, under Debian's own Python and its older PyTorch."""
    if shell.run(DEBIAN_PYTHON, "-c", "import torch, numpy, pytest") != 0:
        raise StageFailed(f"{DEBIAN_PYTHON} lacks torch, numpy or pytest: "
                          "apt-get install python3-torch python3-numpy python3-pytest")
    # Only this package: the rest of .venv is for another Python.
    path = BUILD / "debian-path"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    (path / "godwit").symlink_to(installed_package())
    return pytest(shell, "debian", DEBIAN_PYTHON, "tests/python",
                  env={"PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1",
                       "PATH": "/usr/bin:/bin:" + os.environ["PATH"]})


def package(shell: Shell) -> Outcome:
    return pytest(shell, "package", VENV_BIN / "python", "tests/package", TEST_LIMIT)


def installed_package() -> Path:
    where = subprocess.run(
        [VENV_BIN / "python", "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"],
        check=True, capture_output=True, text=True, cwd="/").stdout.strip()
    return Path(where) / "godwit"


@dataclass(frozen=True)
class Stage:
    """One row of the table. The limit is far above what a run takes on 2 busy cores."""

    run: Callable[[Shell], Outcome]
    text: str
    limit_s: float
    usual: bool = True  # else only if it is named
    beside: str = ""  # a stage before it, while which it runs: no stage keeps all cores busy all the time

    @property
    def name(self) -> str:
        return self.run.__name__


STAGES = [
    Stage(unit, "C unit tests, as released", 900),
    Stage(asan, "C unit tests under ASan and UBSan", 900),
    Stage(tsan, "C unit tests under TSan", 900),
    Stage(warnings, "gcc and clang, warnings are errors", 600),
    Stage(python, "Python tests", 1000),
    Stage(debian, "Python tests, Debian's PyTorch", 1000, beside="python"),
    Stage(jobs, "whole jobs of many processes", 1800),
    Stage(fuzz, "made-up input for every decoder", 600, beside="jobs"),
    Stage(package, "symbols, headers, pkg-config", 300),
    Stage(checkpoints, "saves that are killed", 900, usual=False),
    Stage(stress, "parameters, a minute a combination", 5400, usual=False),
]


# --- the page that is printed -------------------------------------------------------------------


@dataclass
class Result:
    stage: Stage
    outcome: Outcome
    seconds: float


class Progress:
    """The line of a running stage; on a terminal it counts the seconds."""

    def __init__(self, title: str):
        self.title = title
        self.done = threading.Event()
        self.clock = threading.Thread(target=self.tick, daemon=True)

    def tick(self) -> None:
        started = time.monotonic()
        while not self.done.wait(1.0):
            print(f"\r{self.title} {time.monotonic() - started:4.0f} s", end="", flush=True)

    def __enter__(self) -> Progress:
        print(self.title, end=" ", flush=True)
        if sys.stdout.isatty():
            self.clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        if self.clock.is_alive():
            self.clock.join()
            print(f"\r\033[K{self.title} ", end="")


def counts(outcome: Outcome) -> str:
    text = f"{outcome.passed} passed, {len(outcome.failed)} failed"
    return text + (f", {len(outcome.skipped)} skipped" if outcome.skipped else "")


class Running(threading.Thread):
    """A stage that is carried out in a thread of its own."""

    def __init__(self, stage: Stage, number: int, of: int):
        super().__init__(daemon=True)
        self.stage = stage
        self.title = f"[{number}/{of}] {stage.name:<8}  {stage.text:<36}"
        self.log = LOGS / f"{stage.name}.log"
        self.log.write_text("")
        self.shell = Shell(self.log, stage.limit_s)
        self.result = Result(stage, Outcome(failed=["interrupted"]), 0.0)
        self.start()

    def run(self) -> None:
        started = time.monotonic()
        try:
            outcome = self.stage.run(self.shell)
            if not outcome.passed and not outcome.failed:
                outcome.failed.append("no test ran")
        except StageFailed as reason:
            outcome = Outcome(failed=[str(reason)])
        except Exception as error:  # ours: the other stages shall still run
            outcome = Outcome(failed=[f"{type(error).__name__}: {error}"])
        self.result = Result(self.stage, outcome, time.monotonic() - started)

    def finish(self) -> Result:
        """Wait for it, and tell what came of it."""
        with Progress(self.title):
            self.join()
        outcome = self.result.outcome
        print(f"{counts(outcome)}  ({self.result.seconds:.0f} s)", flush=True)
        if outcome.failed:
            tail = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
            print(*(f"    | {line}" for line in tail), f"    the whole log: {self.log}", sep="\n", flush=True)
        return self.result


def run_stages(chosen: list[Stage], results: list[Result]) -> None:
    """One after the other, those that run beside one with it; `results` grows."""
    running: list[Running] = []
    try:
        for number, stage in enumerate(chosen, 1):
            running.append(Running(stage, number, len(chosen)))
            following = chosen[number].beside if number < len(chosen) else ""
            while running and following not in [one.stage.name for one in running]:
                results.append(running[0].finish())
                del running[0]
    finally:
        for one in running:  # we were interrupted
            if one.shell.process is not None:
                end_session(one.shell.process)


def summary(results: list[Result], seconds: float) -> Outcome:
    total = Outcome()
    rows = [("stage", "passed", "failed", "skipped", "seconds")]
    for result in results:
        one = result.outcome
        rows.append((result.stage.name, str(one.passed), str(len(one.failed)), str(len(one.skipped)),
                     f"{result.seconds:.1f}"))
        total.passed += one.passed
        total.failed += [f"{result.stage.name}: {name}" for name in one.failed]
        total.skipped += [f"{result.stage.name}: {name}" for name in one.skipped]
    rows.append(("all", str(total.passed), str(len(total.failed)), str(len(total.skipped)),
                 f"{seconds:.1f}"))

    print()
    for stage, *numbers in rows:
        print(f"  {stage:<10}" + "".join(f"{number:>9}" for number in numbers))
    for title, names in (("skipped", total.skipped), ("failed", total.failed)):
        if names:
            print(f"\n  {title}:", *(f"    {name}" for name in names), sep="\n")
    print()
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests, stage by stage.")
    parser.add_argument("stages", nargs="*", metavar="stage", help=", ".join(stage.name for stage in STAGES))
    parser.add_argument("--list", action="store_true", help="list the stages and stop")
    arguments = parser.parse_args()
    if arguments.list:
        print(*(f"{stage.name:<10}{stage.text}" for stage in STAGES), sep="\n")
        return 0
    unknown = set(arguments.stages) - {stage.name for stage in STAGES}
    if unknown:
        parser.error(f"no such stage: {', '.join(sorted(unknown))}")

    os.environ["PATH"] = f"{VENV_BIN}:{os.environ['PATH']}"  # meson and ninja
    LOGS.mkdir(parents=True, exist_ok=True)
    chosen = [stage for stage in STAGES if stage.name in arguments.stages or (not arguments.stages and stage.usual)]
    results: list[Result] = []
    started = time.monotonic()
    interrupted = False
    try:
        run_stages(chosen, results)
    except KeyboardInterrupt:
        interrupted = True
    total = summary(results, time.monotonic() - started)
    if interrupted:
        print("  interrupted; only the stages above ran\n")
    print(counts(total), flush=True)
    return 1 if total.failed or interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
