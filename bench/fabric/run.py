#!/usr/bin/env python3
"""Message times of Godwit's shm fabric beside those of Open MPI and MPICH, in one run.

What is measured.  Two processes pass a message to and fro (pairs.c, one loop for all three); a time is
that of a half round trip, a bandwidth is the size divided by it.

  one   one pair on two cores, the next message right after the answer: 8 B, 4 KB, 1 MB, 64 MB
  four  the same with four pairs on the same two cores
  busy  one pair beside four processes that only burn time, a message each millisecond: 8 B, 4 KB

How.  A round runs every scenario once with each of the three, one right after the other, because the
cost of passing a cache line between two cores changes within minutes on virtual machines.  Ratios are
taken within a round: `2.0` means that Godwit needed half the peer's time.  The table has medians over
the rounds and, in brackets, the least and the greatest.  Across the pairs of a run the median counts.

In `busy` most messages are quick and some wait for several turns of the scheduler, so median and mean
tell different stories: a peer that keeps spinning answers in a microsecond while it happens to hold a
core, and takes milliseconds when it does not.  The target is about the mean, which is what a program
that needs every answer pays; the median and the 90th percentile are printed beside it.

Each runs as it comes, without tuning:
  - Everything runs on two cores that are not siblings, chosen here and inherited.  So Open MPI must not
    bind on its own (`--bind-to none`; binding did not help it here), and is told that the machine has two
    slots: with eight processes it then knows by itself that they share cores, and yields while it waits.
  - MPICH yields after every thousand polls, whatever the number of processes.
  - No launcher can know about the processes of others, as in `busy`.  With --yielding both peers are told
    there to yield at every turn of a wait (`mpi_yield_when_idle`, `MPIR_CVAR_POLLS_BEFORE_YIELD`), which
    about halves Open MPI's mean and takes a third off MPICH's.  This is the sterner comparison.
  - Both start with MPI_Init, without support for threads; Godwit has no such mode.

Exit code: 0 if everything ran, 1 with --strict if a target was missed, 2 if something could not run.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "shared"))

from machine import CannotRun, compile_with, kernel, processor, progress, two_cores  # noqa: E402
from table import short  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RUN_LIMIT_S = 120
N_BUSY = 4
PEERS = {"openmpi": "Open MPI", "mpich": "MPICH"}
NAMES = {"godwit": "Godwit", **PEERS}
SIZES = {8: "8 B", 4096: "4 KB", 1 << 20: "1 MB", 64 << 20: "64 MB"}


Process = tuple[list[str], dict[str, str]]  # arguments, and what to add to the environment


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    n_pairs: int = 1
    mode: str = "closed"
    sizes: Sequence[int] = tuple(SIZES)
    busy: bool = False
    targets: dict[str, float] = dataclasses.field(default_factory=dict)
    extra: bool = False  # only with --extra: no target, but part of the truth

    @property
    def figures(self) -> Sequence[str]:
        """What is shown of each size; the target is about the first."""
        return ("mean_us", "median_us", "p90_us") if self.mode == "paced" else ("mean_us",)


SCENARIOS = (
    Scenario("one", "one pair on 2 cores", targets={"openmpi": 1, "mpich": 1}),
    Scenario("four", "four pairs on 2 cores", n_pairs=4, targets={"openmpi": 1}),
    Scenario("busy", "one pair beside four busy processes, a message each millisecond",
             mode="paced", sizes=(8, 4096), busy=True, targets={"openmpi": 3, "mpich": 3}),
    Scenario("idle", "one pair on 2 cores, a message each millisecond",
             mode="paced", sizes=(8, 4096), extra=True),
    Scenario("crowd", "one pair beside four busy processes, back to back",
             sizes=(8, 4096), busy=True, extra=True),
)


# ------------------------------------------------------------------ starting


def build_programs(godwit: Path) -> dict[str, Path]:
    """The programs there are; those left out are named in a line."""
    programs = {}
    if godwit.exists():
        programs["godwit"] = godwit
    else:
        print(f"Godwit left out: no {godwit} (configure with -Dbench=true)")
    for peer, name in PEERS.items():
        if shutil.which(f"mpicc.{peer}") and shutil.which(f"mpirun.{peer}"):
            programs[peer] = compile_with(f"mpicc.{peer}", HERE, ["pairs.c", "mpi.c"], godwit.parent / f"pairs-{peer}")
        else:
            print(f"{name} left out: no mpicc.{peer} or no mpirun.{peer}")
    return programs


def versions(programs: dict[str, Path]) -> dict[str, str]:
    """What each peer says of itself: the first word with a dot between digits."""
    found = {"godwit": (ROOT / "VERSION").read_text().strip()}
    for peer in (peer for peer in PEERS if peer in programs):
        text = subprocess.run([f"mpirun.{peer}", "--version"], capture_output=True, text=True).stdout
        found[peer] = next((word for word in text.split() if word[0].isdigit() and "." in word), "?")
    return found


def processes(peer: str, command: list[str], n_ranks: int, yielding: bool) -> list[Process]:
    """What to start so that `n_ranks` processes run `command`."""
    if peer == "godwit":
        job = f"bench-{os.getpid()}-{time.monotonic_ns()}"
        return [(command, {"GODWIT_JOB": job, "GODWIT_RANK": str(rank), "GODWIT_SIZE": str(n_ranks),
                           "GODWIT_TIMEOUT": "60"}) for rank in range(n_ranks)]
    if peer == "mpich":
        extra = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"} if yielding else {}
        return [(["mpirun.mpich", "-n", str(n_ranks), *command], extra)]
    settings = ["--bind-to", "none", "--host", "localhost:2", "--oversubscribe"]
    if os.geteuid() == 0:
        settings.append("--allow-run-as-root")
    if yielding:
        settings += ["--mca", "mpi_yield_when_idle", "1"]
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


@contextlib.contextmanager
def busy_processes(program: Path, n: int) -> Iterator[None]:
    """`n` processes that burn time, all of them running before this goes on."""
    children = []
    try:
        for _ in range(n):
            children.append(subprocess.Popen([str(program), str(RUN_LIMIT_S + 60)], stdout=subprocess.PIPE))
        for child in children:
            child.stdout.read(1)
        yield
    finally:
        stop(children)
        for child in children:
            child.stdout.close()


# ----------------------------------------------------------------- measuring


def measure(peer: str, programs: dict[str, Path], scenario: Scenario,
            arguments: argparse.Namespace) -> dict[int, dict[str, float]]:
    """One run: for each size what rank 0 printed."""
    if scenario.mode == "paced":
        seconds, repeats = (0.5 if arguments.quick else 1.5), 1  # one long repeat: a mean wants many messages
    else:
        seconds, repeats = (0.05 if arguments.quick else 0.1), (3 if arguments.quick else 5)
    command = [str(programs[peer]), scenario.mode, str(seconds), str(repeats), *map(str, scenario.sizes)]
    commands = processes(peer, command, 2 * scenario.n_pairs, arguments.yielding and scenario.busy)
    with busy_processes(programs["busy"], N_BUSY if scenario.busy else 0):
        text = run_together(commands)
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if [line["bytes"] for line in lines] != list(scenario.sizes):
        raise CannotRun(f"{peer} printed something else than its times:\n{text}")
    return {line["bytes"]: line for line in lines}


def measure_rounds(programs: dict[str, Path], scenarios: Sequence[Scenario],
                   arguments: argparse.Namespace) -> list[dict[str, dict[str, dict[int, dict[str, float]]]]]:
    """For each round, scenario, peer and size: what the run printed."""
    rounds = []
    present = [peer for peer in NAMES if peer in programs]
    for number in range(arguments.rounds):
        # Every other round in the opposite order, so that none always follows the same one.
        order = present if number % 2 == 0 else present[::-1]
        found: dict[str, dict[str, Any]] = {}
        for scenario in scenarios:
            found[scenario.name] = {}
            for peer in order:
                progress(f"round {number + 1} of {arguments.rounds}: {scenario.name}, {NAMES[peer]}")
                found[scenario.name][peer] = measure(peer, programs, scenario, arguments)
        rounds.append(found)
    progress("")
    return rounds


# ----------------------------------------------------------------- reporting


@dataclasses.dataclass(frozen=True)
class Spread:
    median: float
    least: float
    greatest: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.least)}..{short(self.greatest)})"


@dataclasses.dataclass(frozen=True)
class Row:
    scenario: str
    bytes: int
    figure: str  # "us" or "GB/s"; of paced messages "mean us", "median us", "p90 us"
    values: dict[str, Spread]
    ratios: dict[str, Spread]  # how many times as fast Godwit is
    targets: dict[str, float]
    verdict: str  # "pass", "miss", "not measured" or ""


def verdict(ratios: dict[str, Spread], targets: dict[str, float]) -> str:
    if not targets:
        return ""
    if targets.keys() - ratios.keys():
        return "not measured"
    return "pass" if all(ratios[peer].median >= target for peer, target in targets.items()) else "miss"


def make_row(rounds: Sequence[dict[str, Any]], scenario: Scenario, n_bytes: int, figure: str) -> Row:
    times = {peer: [found[scenario.name][peer][n_bytes][figure] for found in rounds]
             for peer in rounds[0][scenario.name]}
    ratios = {peer: Spread.of([theirs / ours for theirs, ours in zip(times[peer], times["godwit"])])
              for peer in PEERS if peer in times and "godwit" in times}
    targets = scenario.targets if figure == scenario.figures[0] else {}
    if n_bytes >= 1 << 20:
        unit = "GB/s"
        times = {peer: [n_bytes / us / 1e3 for us in each] for peer, each in times.items()}
    else:
        unit = "us" if len(scenario.figures) == 1 else figure.replace("_", " ")
    values = {peer: Spread.of(each) for peer, each in times.items()}
    return Row(scenario.name, n_bytes, unit, values, ratios, targets, verdict(ratios, targets))


def make_rows(rounds: Sequence[dict[str, Any]], scenarios: Sequence[Scenario]) -> list[Row]:
    return [make_row(rounds, scenario, n_bytes, figure)
            for scenario in scenarios for n_bytes in scenario.sizes for figure in scenario.figures]


def target_text(targets: dict[str, float]) -> str:
    if not targets:
        return ""
    whom = "both" if len(targets) == len(PEERS) else " and ".join(NAMES[peer] for peer in targets)
    return f">= {min(targets.values()):g} x {whom}"


def print_table(rows: Sequence[Row], scenarios: Sequence[Scenario]) -> None:
    head = ["", "", *NAMES.values(), *(f"x {name}" for name in PEERS.values()), "target", ""]
    lines = {scenario.name: [[SIZES[row.bytes], row.figure,
                              *(str(row.values.get(peer, "-")) for peer in NAMES),
                              *(str(row.ratios.get(peer, "-")) for peer in PEERS),
                              target_text(row.targets), row.verdict]
                             for row in rows if row.scenario == scenario.name] for scenario in scenarios}
    widths = [max(len(line[i]) for line in [head, *sum(lines.values(), [])]) for i in range(len(head))]

    def show(cells: Sequence[str]) -> None:
        print(("  " + "  ".join(cell.ljust(width) for cell, width in zip(cells, widths))).rstrip())

    for scenario in scenarios:
        print(f"\n{scenario.title}")
        show(head)
        for line in lines[scenario.name]:
            show(line)


def write_json(path: Path, rows: Sequence[Row], rounds: Sequence[Any], about: dict[str, Any]) -> None:
    path.write_text(json.dumps({**about, "rows": [dataclasses.asdict(row) for row in rows], "rounds": rounds},
                               indent=1) + "\n")


def write_plot(path: Path, rows: Sequence[Row], about: dict[str, Any]) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [row for row in rows if row.ratios]
    figure, axes = plt.subplots(figsize=(9, 1.5 + 0.45 * len(shown)), layout="constrained")
    for i, peer in enumerate(PEERS):
        bars = [(y + 0.4 * i, row.ratios[peer]) for y, row in enumerate(shown) if peer in row.ratios]
        axes.barh([y for y, _ in bars], [spread.median for _, spread in bars], height=0.38, label=NAMES[peer],
                  xerr=[[spread.median - spread.least for _, spread in bars],
                        [spread.greatest - spread.median for _, spread in bars]])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks([y + 0.2 for y in range(len(shown))],
                    [f"{row.scenario}, {SIZES[row.bytes]}, {row.figure}" for row in shown])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("how many times as fast as the peer Godwit is (right of 1: Godwit is faster)")
    axes.set_title(f"Messages between processes, {about['processor']}", fontsize=10)
    axes.legend()
    figure.savefig(path)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Message times of Godwit beside those of Open MPI and MPICH.")
    parser.add_argument("--godwit", type=Path, default=ROOT / "build/bench/pairs-godwit", metavar="PROGRAM",
                        help="pairs-godwit as meson built it; the peers' programs are put beside it")
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is measured (5)")
    parser.add_argument("--quick", action="store_true", help="two rounds of short runs: a look, not a result")
    parser.add_argument("--only", nargs="+", choices=[s.name for s in SCENARIOS], help="these scenarios only")
    parser.add_argument("--extra", action="store_true", help="also the scenarios without a target")
    parser.add_argument("--yielding", action="store_true", help="tell the MPIs to yield beside busy processes")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a target is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure of every run")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the ratios (needs matplotlib)")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    if arguments.quick:
        arguments.rounds = min(arguments.rounds, 2)
    arguments.godwit = arguments.godwit.resolve()
    return arguments


def main() -> int:
    arguments = parse_arguments()
    scenarios = [s for s in SCENARIOS
                 if (s.name in arguments.only if arguments.only else arguments.extra or not s.extra)]
    cores = two_cores()
    os.sched_setaffinity(0, cores)
    programs = build_programs(arguments.godwit)
    if not programs:
        raise CannotRun("nothing to measure")
    programs["busy"] = compile_with("cc", HERE, ["busy.c"], arguments.godwit.parent / "busy")
    about = {"processor": processor(), "cores": cores, "kernel": kernel(), "versions": versions(programs),
             "load_before": os.getloadavg()[0], "yielding": arguments.yielding, "quick": arguments.quick}
    print(f"{about['processor']}, cores {cores[0]} and {cores[1]}, Linux {about['kernel']}, "
          + ", ".join(f"{NAMES[peer]} {version}" for peer, version in about["versions"].items())
          + f", load before {about['load_before']:.2f}")

    rounds = measure_rounds(programs, scenarios, arguments)
    rows = make_rows(rounds, scenarios)
    print(f"Rounds: {len(rounds)}.  Medians (least..greatest).  'x Open MPI' 2.0: Godwit needs half the time.")
    print_table(rows, scenarios)
    judged = [row for row in rows if row.verdict in ("pass", "miss")]
    passed = sum(row.verdict == "pass" for row in judged)
    print(f"\n{passed} of {len(judged)} targets met")
    if arguments.json:
        write_json(arguments.json, rows, rounds, about)
    if arguments.plot:
        write_plot(arguments.plot, rows, about)
    return 1 if arguments.strict and passed < len(judged) else 0


if __name__ == "__main__":
    # Ended from outside it must still end what it started.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        sys.exit(main())
    except (CannotRun, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
