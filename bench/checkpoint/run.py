#!/usr/bin/env python3
"""Saving and loading parameters, beside plainly writing and reading as many bytes on the same disk.

    python bench/checkpoint/run.py [--quick] [--dir DIRECTORY] [--strict] ...

What is measured.  float32 vectors of 64 entries, all of them set; two processes on one node, two processes that are a node each,
and four processes on one node.  See main.c for the program.

  save  gw_params_save() over an earlier checkpoint, beside `write`: each process writes as many bytes (vectors and keys) from an
        array to a file of its own, fsync()s it, and renames it over an earlier one.  Both end when everything is on disk.
  load  gw_params_load(), beside `read`: each process reads such a file into an array that is there.  Before each of the two the
        files are dropped from the system's page cache, so that the bytes come from the disk.  (A host may have them in a cache of its
        own, which is the same for both.)  `warm` is the same again from the page cache; it has no target, since it has no disk in it.

How.  The four take turns in each round, all processes at the same time.  A figure is the median over the rounds with the quartiles
in brackets; a ratio is taken within a round: how fast Godwit is, where 1 is as fast as plainly.

Exit code: 0 if everything ran, 1 with --strict if a target was missed, 2 if something could not run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "shared"))

from machine import kernel, processor, progress, run_main, run_program  # noqa: E402
from table import Table, add_usual_arguments, check_usual_arguments, conclude, draw_nothing, short  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
GODWIT = ROOT / "build/bench/bench/checkpoint"
LENGTH = 64
TARGET = 0.7
PAIRS = {"save": "write", "load": "read", "load warm": "read warm"}
LAYOUTS = {"2 processes, 1 node": (2, 1), "2 processes, 2 nodes": (2, 2), "4 processes, 1 node": (4, 1)}
LIMIT_S = 900


@dataclasses.dataclass(frozen=True)
class Spread:
    median: float
    lower: float
    upper: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        lower, _, upper = quantiles(values, method="inclusive") if len(values) > 1 else list(values) * 3
        return Spread(median(values), lower, upper)

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.lower)}..{short(self.upper)})"


def measure_layout(arguments: argparse.Namespace, processes: int, nodes: int) -> dict[str, list[float]]:
    """GB/s of each round, by what was measured."""
    directory = Path(tempfile.mkdtemp(prefix="godwit-bench-", dir=arguments.dir))
    command = [str(arguments.godwit), str(directory), str(processes), str(nodes), str(arguments.keys), str(LENGTH), str(arguments.rounds)]
    try:
        lines = run_program(command, LIMIT_S)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    found: dict[str, list[float]] = {}
    for line in lines:
        found.setdefault(line["case"], []).append(line["gb_per_s"])
    return found


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    load = os.getloadavg()[0]
    layouts = {}
    for name, (processes, nodes) in LAYOUTS.items():
        progress(f"{name}, {arguments.rounds} rounds")
        layouts[name] = measure_layout(arguments, processes, nodes)
    progress("")
    about = {"processor": processor(), "cores": os.cpu_count(), "kernel": kernel(), "quick": arguments.quick,
             "directory": str(arguments.dir), "gb": arguments.keys * (4 * LENGTH + 8) * 1e-9, "load_before": load,
             "load_after": os.getloadavg()[0]}
    return {"about": about, "layouts": layouts}


def make_table(run: dict[str, Any]) -> Table:
    table = Table("GB/s, and how fast Godwit is beside plainly doing it",
                  ("who", "what", "Godwit", "plainly", "share", "target", "verdict"))
    for name, found in run["layouts"].items():
        for ours, plain in PAIRS.items():
            share = Spread.of([a / b for a, b in zip(found[ours], found[plain])])
            target = ["", ""] if ours.endswith("warm") else [f">= {TARGET:g}", "pass" if share.median >= TARGET else "miss"]
            table.rows.append([name, ours, Spread.of(found[ours]), Spread.of(found[plain]), share, *target])
    return table


def print_about(about: dict[str, Any]) -> None:
    print(f"{about['processor']}, {about['cores']} cores, Linux {about['kernel']}; {about['gb']:.2f} GB, {LENGTH} x float32, in {about['directory']}")
    print(f"load of the machine before and after: {about['load_before']:.1f}, {about['load_after']:.1f}")
    if about["quick"]:
        print("quick: a look, not a result")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Checkpoints beside plainly writing and reading as many bytes.")
    add_usual_arguments(parser, "checkpoint", GODWIT, 9)
    parser.add_argument("--dir", type=Path, default=ROOT / "build", help="on the disk to measure (build)")
    parser.add_argument("--keys", type=int, default=2_000_000, help="how many (2,000,000: 0.53 GB)")
    parser.add_argument("--quick", action="store_true", help="three rounds with 400,000 keys: a look, not a result")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.keys = 3, 400_000
    check_usual_arguments(parser, arguments)
    return arguments


def main() -> int:
    arguments = parse_arguments()
    run = json.loads(arguments.earlier.read_text()) if arguments.earlier else measure(arguments)
    print_about(run["about"])
    return conclude(run, [make_table(run)], arguments, draw_nothing)


if __name__ == "__main__":
    run_main(main)
