#!/usr/bin/env python3
"""Collectives of Godwit's shm fabric beside Open MPI, MPICH, gloo and mpi4torch, and beside memcpy, in one run.

    python bench/comm/run.py [--mpi4torch PYTHON] [--quick] [--only c|python] [--strict] [--json FILE] ...

What is measured, with 2 and with 4 ranks on two cores, all entries being doubles:

  c       From C, into memory that is allocated beforehand (collectives.c, one loop for all three): Allreduce
          from 8 B to 80 MB, and for orientation Bcast, Allgather, Alltoall and Reduce_scatter at some sizes.
          A size is that of the larger side of one rank, so nobody holds more than 80 MB of it.
          The limit (copy.c): memcpy of 80 MB by both cores at once, each copying a half.
          The memory that the ranks share (shared.h).
  python  From Python (tensors.py): Allreduce of 1e3, 1e6 and 1e7 doubles, forward through autograd, and
          forward and backward; and beside it Godwit's call from C, in the same rounds.  A pass through autograd
          takes twice as long with one PyTorch as with another, and mpi4torch does not compile with all of them,
          so Godwit is measured with mpi4torch's as well, and that is what mpi4torch is compared with.

How.  A round runs everything once with each peer, one right after the other, because the speed of two cores
beside each other changes within minutes on virtual machines; collectives without a target take part in every
other round only.  Ratios are taken within a round: `2.0` means
that Godwit needed half the peer's time.  The tables have medians over the rounds and, in brackets, the least
and the greatest.  A time is that of the slowest rank, per call, with calls following one another.  How the
peers are started is said in peers.py.

The share of memcpy.  Counted are the bytes of the outputs of all ranks together, so ranks x 80 MB, divided
by the time of the call.  memcpy counts the bytes copied.  In both every byte that is counted is written to
memory once and at least one is read for it; whatever else a collective moves, into windows and out of them,
is its own cost.  At 100 % a collective takes as long as copying all the outputs once, by both cores.

Forward from Python may take 10 us more than the call from C.  The tensor that it returns is new, while the
output in C is given: beyond some MB, the kernel then hands out and clears pages in each call, which takes far
longer than 10 us.  So the C call with an output that is allocated for it is measured too and stands beside.
The target is about the first.  Where it is missed by less than the C call itself varies from round to round,
the verdict is `unclear`.

Exit code: 0 if everything ran, 1 with --strict if a target was missed, 2 if something could not run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "shared"))

import peers  # noqa: E402
import plot  # noqa: E402
import report  # noqa: E402
from machine import CannotRun, compile_with, kernel, processor, progress, two_cores  # noqa: E402
from peers import Job  # noqa: E402
from report import ALLREDUCE_SIZES, N_RANKS, OTHER_KINDS, OTHER_SIZES, PYTHON_DOUBLES  # noqa: E402
from table import conclude  # noqa: E402

GODWIT = peers.ROOT / "build/bench/bench/collectives-godwit"


def c_cells(round_number: int) -> list[str]:
    """The arguments of collectives.c, in the order in which they are measured."""
    cells = [f"allreduce:{n}" for n in ALLREDUCE_SIZES]
    if round_number % 2 == 0:
        cells += [f"{kind}:{n}" for kind in OTHER_KINDS for n in OTHER_SIZES]
    return cells


def measure_c(peer: str, program: Path, n_ranks: int, cells: Sequence[str], quick: bool) -> dict[str, Any]:
    """One run: for each cell what rank 0 printed."""
    seconds, repeats = (0.005, 2) if quick else (0.04, 3)
    text = peers.run_together(peers.processes(peer, [str(program), str(seconds), str(repeats), *cells], n_ranks))
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    found = {f"{line['kind']}:{line['bytes']}": line for line in lines}
    if list(found) != list(cells):
        raise CannotRun(f"{peer} printed something else than its times:\n{text}")
    return found


def measure_copy(program: Path, quick: bool) -> float:
    text = peers.run_together([([str(program), str(ALLREDUCE_SIZES[-1]), "5" if quick else "15"], {})])
    return json.loads(text)["gb_per_s"]


def c_rounds(programs: dict[str, Path], copy: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """For each round and number of ranks: memcpy's GB/s, and by peer and cell what was found."""
    rounds = []
    for number in range(arguments.rounds):
        # Every other round in the opposite order, so that none always follows the same one.
        order = list(programs) if number % 2 == 0 else list(programs)[::-1]
        cells = c_cells(number)
        found: dict[str, Any] = {}
        for n_ranks in N_RANKS:
            found[str(n_ranks)] = {"copy": measure_copy(copy, arguments.quick)}
            for peer in order:
                progress(f"round {number + 1} of {arguments.rounds}: {n_ranks} ranks, {peers.NAMES[peer]}")
                found[str(n_ranks)][peer] = measure_c(peer, programs[peer], n_ranks, cells, arguments.quick)
        rounds.append(found)
    progress("")
    return rounds


# --------------------------------------------------------------- from Python


def python_peers(arguments: argparse.Namespace) -> dict[str, tuple[str, str]]:
    """By peer: who launches it, and its interpreter.  Those left out are named in a line."""
    found = {"godwit": ("godwit", sys.executable), "gloo": ("gloo", sys.executable)}
    if arguments.mpi4torch is None:
        print("mpi4torch left out: name a Python that has it with --mpi4torch")
        return found
    mpi = mpi_of(arguments.mpi4torch)
    if mpi is None:
        print(f"mpi4torch left out: {arguments.mpi4torch} has no mpi4torch that uses Open MPI or MPICH")
    else:
        found["godwit-there"] = ("godwit", arguments.mpi4torch)
        found["mpi4torch"] = (mpi, arguments.mpi4torch)
    return found


def mpi_of(python: str) -> str | None:
    """Which MPI that Python's mpi4torch was built with: its libraries name theirs."""
    code = "import importlib.util as u; print(u.find_spec('mpi4torch').submodule_search_locations[0])"
    try:
        asked = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    binary = b"".join(path.read_bytes() for path in Path(asked.stdout.strip()).rglob("*.so"))
    return next((mpi for mpi, name in {"mpich": b"libmpich", "openmpi": b"libmpi.so"}.items() if name in binary), None)


def start_jobs(found: dict[str, tuple[str, str]], n_ranks: int, about: dict[str, Any]) -> dict[str, Job]:
    """A job for each peer, ready; those that cannot be had are named in a line."""
    jobs: dict[str, Job] = {}
    try:
        for peer, (launcher, python) in found.items():
            progress(f"starting {peer} from Python with {n_ranks} ranks")
            jobs[peer] = Job(peer, launcher, python, n_ranks)
            ready = jobs[peer].answer()
            if "left_out" in ready:
                progress("")
                if n_ranks == N_RANKS[0]:
                    print(f"{peer} from Python left out: {ready['left_out']}")
                jobs.pop(peer).close()
            else:
                about["python"][peer] = {**ready, "launcher": launcher}
        return jobs
    except BaseException:
        close_jobs(jobs)
        raise


def close_jobs(jobs: dict[str, Job]) -> None:
    for job in jobs.values():
        job.close()


def measure_python(job: Job, peer: str, quick: bool) -> dict[str, Any]:
    seconds, repeats = (0.005, 2) if quick else (0.04, 3)
    kinds = ("forward", "copied" if peer == "gloo" else "both")
    return {f"{kind}:{n}": job.order(f"{kind} {n} {seconds} {repeats}") for n in PYTHON_DOUBLES for kind in kinds}


def python_rounds(programs: dict[str, Path], about: dict[str, Any],
                  arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """For each round and number of ranks: by peer and cell what was found; Godwit from C is the peer `c`."""
    rounds: list[dict[str, Any]] = [{} for _ in range(arguments.rounds)]
    found = python_peers(arguments)
    cells = [f"{kind}:{n * 8}" for n in PYTHON_DOUBLES for kind in ("allreduce", "fresh")]
    for n_ranks in N_RANKS:
        jobs = start_jobs(found, n_ranks, about)
        try:
            for number, round_ in enumerate(rounds):
                order = [*(["c"] if "godwit" in programs else []), *jobs]
                here = round_[str(n_ranks)] = {}
                for peer in order if number % 2 == 0 else order[::-1]:
                    progress(f"round {number + 1} of {arguments.rounds}: {n_ranks} ranks, {peer} beside Python")
                    here[peer] = (measure_c("godwit", programs["godwit"], n_ranks, cells, arguments.quick)
                                  if peer == "c" else measure_python(jobs[peer], peer, arguments.quick))
        finally:
            close_jobs(jobs)
    progress("")
    return rounds


# ---------------------------------------------------------------------- main


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Collectives of Godwit beside those of its peers.")
    parser.add_argument("--godwit", type=Path, default=GODWIT, metavar="PROGRAM",
                        help="collectives-godwit as meson built it; the peers' programs are put beside it")
    parser.add_argument("--mpi4torch", metavar="PYTHON", help="an interpreter that has mpi4torch")
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is measured (5)")
    parser.add_argument("--quick", action="store_true", help="two rounds of short runs: a look, not a result")
    parser.add_argument("--only", choices=("c", "python"), help="this half only")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a target is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", default=peers.ROOT / "build/bench-comm.json",
                        help="where every figure of every run goes (build/bench-comm.json)")
    parser.add_argument("--plot", type=Path, metavar="FILE", default=peers.ROOT / "build/bench-comm.svg",
                        help="where the picture goes, .svg or .png (build/bench-comm.svg)")
    parser.add_argument("--from", type=Path, metavar="FILE", dest="earlier",
                        help="measure nothing: show an earlier run's --json again")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    if arguments.quick:
        arguments.rounds = min(arguments.rounds, 2)
    arguments.godwit = arguments.godwit.resolve()
    return arguments


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    cores = two_cores()
    os.sched_setaffinity(0, cores)
    start = time.monotonic()
    programs = peers.build_programs(arguments.godwit)
    if not programs:
        raise CannotRun("nothing to measure")
    copy = compile_with("cc", peers.HERE, ["copy.c"], arguments.godwit.parent / "copy")
    about: dict[str, Any] = {
        "processor": processor(), "cores": cores, "kernel": kernel(),
        "versions": peers.versions(programs), "load_before": os.getloadavg()[0], "quick": arguments.quick,
        "python": {}}
    from_c = c_rounds(programs, copy, arguments) if arguments.only != "python" else []
    from_python = python_rounds(programs, about, arguments) if arguments.only != "c" else []
    about["took_s"] = time.monotonic() - start
    return {"about": about, "c": from_c, "python": from_python}


def main() -> int:
    arguments = parse_arguments()
    run = json.loads(arguments.earlier.read_text()) if arguments.earlier else measure(arguments)
    tables = report.make_tables(run)
    report.print_about(run)
    return conclude(run, tables, arguments, plot.draw)


if __name__ == "__main__":
    peers.end_when_told()
    try:
        sys.exit(main())
    except (CannotRun, subprocess.CalledProcessError) as error:
        progress("")
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
