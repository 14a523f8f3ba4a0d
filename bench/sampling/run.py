#!/usr/bin/env python3
"""Samples beside plain pulls of the same keys, with the four schemes, on one node and on two.

    python bench/sampling/run.py [--quick] [--strict] [--rounds 3] ...

What is measured.  Two processes with a worker each on one machine, which are one node or two virtual ones; float32, vectors
of 64 entries, 1 million keys; samples of 512 keys, each with a clock of its own, prepared 50 clocks ahead.  See main.c.

  plain    pulls of 512 of the same keys in a call, those that are on the node then: what a sample is compared with
  prepare  the time of a worker in prepare_sample, which draws the keys and announces them
  pull     its time in pull_sample
  bare     prepare and pull one after the other, as fast as it goes: on two nodes, announced keys have to be moved at the same
           time by agents that share two cores with the two workers

Schemes that announce keys are judged by pull in a loop with a millisecond of sleep at each clock, since keys that are
announced ahead shall be there when they are pulled.  What preparing costs is beside it, and the bare loop has it all.
`local` needs nothing in advance, and is judged by its bare loop.

A scheme on a number of nodes is a start of the program; plain pulls and samples take turns in blocks.  A figure is the
median over the rounds of each round's median and, in brackets, of its 10 % and 90 %; a ratio is taken within a round, and has
the least and the greatest in brackets.

Exit code: 0 if everything ran, 1 with --strict if a target was missed, 2 if something could not run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "shared"), str(HERE.parent / "params")]

from machine import busy_s, kernel, own_s, processor, progress, run_main, run_program, two_cores  # noqa: E402
from report import Part, Spread, at_least, print_about, ratio  # noqa: E402
from table import Table, add_usual_arguments, check_usual_arguments, conclude, draw_nothing  # noqa: E402

ROOT = HERE.parent.parent
GODWIT = ROOT / "build/bench/bench/sampling"
LIMIT_S = 120
LOCAL_SHARE = 0.6
ANNOUNCED_SHARE = 0.4
RUNS = [(scheme, "uniform", nodes) for nodes in (1, 2) for scheme in ("local", "preloc", "pool", "naive")]
RUNS += [(scheme, distribution, 2) for scheme, distribution in (("local", "log-uniform"), ("local", "weights"),
                                                                 ("preloc", "weights"), ("pool", "weights"))]


def measure_start(program: Path, scheme: str, distribution: str, nodes: int, quick: bool) -> dict[str, Any]:
    command = [str(program), scheme, distribution, str(nodes), *(["quick"] if quick else [])]
    lines = run_program(command, LIMIT_S)
    return {line.pop("case"): line for line in lines}


def measure_round(arguments: argparse.Namespace, number: int) -> dict[str, dict[str, Any]]:
    found = {}
    for scheme, distribution, nodes in RUNS:
        progress(f"round {number + 1} of {arguments.rounds}: {scheme}, {distribution}, {nodes} node(s)")
        begin, others = time.monotonic(), busy_s() - own_s()
        figures = measure_start(arguments.godwit, scheme, distribution, nodes, arguments.quick)
        others = (busy_s() - own_s() - others) / (time.monotonic() - begin)
        found[f"{scheme} {distribution} {nodes}"] = {**figures, "others": max(0.0, others)}
    progress("")
    return found


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    cores = two_cores()
    os.sched_setaffinity(0, cores)
    start, load = time.monotonic(), os.getloadavg()[0]
    rounds = [measure_round(arguments, number) for number in range(arguments.rounds)]
    about = {"processor": processor(), "cores": cores, "kernel": kernel(), "quick": arguments.quick,
             "load_before": load, "load_after": os.getloadavg()[0], "took_s": time.monotonic() - start}
    return {"about": about, "rounds": rounds}


def m_keys(part: Part, case: str) -> Spread:
    """M keys/s of what takes so many ns a key."""
    spread = part.spread(case)
    return Spread(*(1e3 / ns for ns in (spread.median, spread.upper, spread.lower)))


def make_row(part: Part, scheme: str, distribution: str, nodes: int) -> list[Any]:
    pull = ratio(part.figures("paced plain"), part.figures("paced pull"))
    both = ratio(part.figures("paced plain"), part.figures("paced loop"))
    bare = ratio(part.figures("bare plain"), part.figures("bare loop"))
    judged = at_least(bare, LOCAL_SHARE) if scheme == "local" else at_least(pull, ANNOUNCED_SHARE)
    return [f"{scheme}, {distribution}, {nodes} node{'s' if nodes > 1 else ''}", part.spread("paced plain"),
            part.spread("paced prepare"), part.spread("paced pull"), pull, both, part.spread("bare plain"),
            part.spread("bare loop"), bare, m_keys(part, "bare block"), part.spread("bare remote", 100),
            *(judged if scheme != "naive" else ["", ""])]


def make_table(run: dict[str, Any]) -> Table:
    table = Table("Samples of 512 keys beside plain pulls of the same keys, ns a key",
                  ["", "plain", "prepare", "pull", "share", "both", "bare: plain", "loop", "share",
                   "M keys/s per worker", "remote, %", "target", "verdict"],
                  notes=["Prepared 50 clocks ahead.  A share is plain time / time; both: of prepare and pull.  local is judged by the",
                         "bare loop, preloc and pool by pull.  Remote: keys of the bare loop that were not here when they were pulled."])
    for scheme, distribution, nodes in RUNS:
        part = Part(run, f"{scheme} {distribution} {nodes}")
        if part:
            table.rows.append(make_row(part, scheme, distribution, nodes))
    return table


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Samples beside plain pulls of the same keys.")
    add_usual_arguments(parser, "sampling", GODWIT, 3)
    parser.add_argument("--quick", action="store_true", help="one round of short runs: a look, not a result")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = 1
    check_usual_arguments(parser, arguments)
    return arguments


def main() -> int:
    arguments = parse_arguments()
    run = json.loads(arguments.earlier.read_text()) if arguments.earlier else measure(arguments)
    print_about(run)
    return conclude(run, [make_table(run)], arguments, draw_nothing)


if __name__ == "__main__":
    run_main(main)
