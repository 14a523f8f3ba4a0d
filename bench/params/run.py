#!/usr/bin/env python3
"""Parameters on two nodes: keys of the other node, keys that move, replicas, and batches of Zipf keys.

    python bench/params/run.py [--quick] [--only machine|local|remote|localize|intent|hot|idle|zipf ...] [--strict] ...

What is measured.  Two processes with a worker each on one machine, two virtual nodes over the shm fabric; float32,
vectors of 64 entries, 1 million keys, all of them set; key k is at home on node k % 2.  See main.c for the program.

  machine   How fast it is just now, with nothing of Godwit at work: machines that share their host with others are twice
            as slow in some hours as in others.
  local     Pull, push and set of 512 random keys that are here: with two nodes, and the same keys with one.  `meanwhile`:
            just after an asynchronous pull of 3 keys of the other node was begun.
  remote    Pull and push of 1, 32 and 1024 random keys of the other node, whose worker sleeps: its agent serves.
            `after a pause`: 5 ms before each call, so that the request finds the agent asleep.
  localize  10,000 random keys of the other node in a call, first by one worker, then by the other one.
  intent    From the call of intent() until is_local() says that all keys are.  Keys of the other node, new ones each
            time, which only this worker wants.
  hot       10,000 keys that both announced, so both nodes have them.  Both workers pull and push batches of 512 of
            them all the time; in turns with the same on keys of their own.  Staleness: from a push on node 0 until
            worker 1 on node 1 sees it, between its batches, while that load runs; beside what kv.stats() says of it.
            What a change that is told and answered costs both agents.  And the same loop while each worker reads all
            statistics 100 times a second.
  idle      200,000 keys that both nodes have and nobody uses: what the agents need of a core, and the staleness of
            100 of these keys when they are pushed once in a while.
  zipf      Batches of 512 Zipf(1.0) keys pulled and pushed, each batch with a clock of its own, announced 50 batches
            ahead or not; as fast as it goes, and with 1 ms of computing in each.  On two nodes, and on one node with
            both workers.

How.  A part of a round is a start of the program, for local and zipf one with one node and one with two.  Within it, calls and
their purely local counterparts take turns.  A figure is the median over the rounds of each round's median and, in
brackets, of its 10 % and 90 %; a ratio is taken within a round, and has the least and the greatest in brackets.

In loops a key that is pulled and pushed counts once.  Their rates are those of tenths of a second, per worker.
Two workers and two agents share the machine's cores: with two cores, what the agents need the workers lack.  It is
told how much of the cores others used meanwhile; where that is more than little, times are not to be trusted.

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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "shared"))

import report  # noqa: E402
from machine import busy_s, kernel, own_s, processor, progress, run_main, run_program, two_cores  # noqa: E402
from table import add_usual_arguments, check_usual_arguments, conclude, draw_nothing  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
GODWIT = ROOT / "build/bench/bench/params"
PART_LIMIT_S = 120
# By part, the numbers of nodes to start it with.
PARTS: dict[str, tuple[int, ...]] = {"machine": (2,), "local": (1, 2), "remote": (2,), "localize": (2,), "intent": (2,), "hot": (2,),
                                     "idle": (2,), "zipf": (1, 2)}


def measure_part(program: Path, part: str, nodes: int, quick: bool) -> dict[str, Any]:
    """One start of the program: its figures by case."""
    command = [str(program), part, str(nodes), *(["quick"] if quick else [])]
    lines = run_program(command, PART_LIMIT_S)
    return {line.pop("case"): line for line in lines}


def measure_round(arguments: argparse.Namespace, number: int) -> dict[str, dict[str, Any]]:
    """The figures of each start, by part and number of nodes; "others": how many cores others used."""
    found: dict[str, dict[str, Any]] = {}
    for part in arguments.only or PARTS:
        for nodes in PARTS[part]:
            progress(f"round {number + 1} of {arguments.rounds}: {part}, {nodes} node{'s' if nodes > 1 else ''}")
            begin, others = time.monotonic(), busy_s() - own_s()
            figures = measure_part(arguments.godwit, part, nodes, arguments.quick)
            others = (busy_s() - own_s() - others) / (time.monotonic() - begin)
            found[f"{part} {nodes}"] = {**figures, "others": max(0.0, others)}
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


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Parameters on two nodes beside parameters on one.")
    add_usual_arguments(parser, "params", GODWIT, 3)
    parser.add_argument("--quick", action="store_true", help="one round of short runs: a look, not a result")
    parser.add_argument("--only", nargs="+", choices=tuple(PARTS), help="these parts only")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = 1
    check_usual_arguments(parser, arguments)
    return arguments


def main() -> int:
    arguments = parse_arguments()
    run = json.loads(arguments.earlier.read_text()) if arguments.earlier else measure(arguments)
    report.print_about(run)
    return conclude(run, report.make_tables(run), arguments, draw_nothing)


if __name__ == "__main__":
    run_main(main)
