#!/usr/bin/env python3
"""The programs in apps/ on one node, on virtual nodes with intent, and without it.

    python bench/apps/run.py [NAME ...] [--wn18rr DIR] [--rounds 3] [--quick] [--strict] ...

What is measured.  Two processes on one machine train a few epochs of generated data: as one node, where both see all vectors in
memory; as two virtual nodes of one process each, where vectors move or are copied, batches announced ahead; and as two such nodes
where nothing is announced.  Figures are those of the epochs after the first: items (triples, ratings, examples, words) per second
of both processes together, and the share of accesses that needed no message.  kge has the settings that its targets are about: dimension 200, batches of 1,024 triples, 100
negatives; with --wn18rr DIR on that graph.  mf is also measured by parameter blocking, where items are localized block by block.

The three placements take turns in each round.  A figure is the median over rounds with the least and the greatest in brackets;
ratios are taken within a round.

Exit code: 0 if everything ran, 1 with --strict if a target was missed, 2 if something could not run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "shared"), str(HERE.parent / "params")]

from machine import CannotRun, busy_s, kernel, own_s, processor, progress, run_main  # noqa: E402
from report import Spread, at_least, print_about, ratio  # noqa: E402
from table import Table, add_usual_arguments, conclude, draw_nothing  # noqa: E402

ROOT = HERE.parent.parent
GODWIT = Path(sys.executable).parent / "godwit"
LIMIT_S = 600
KGE_SHARE = 0.7  # of one node's triples/s, on two nodes with intent
KGE_LOCAL = 95  # percent

KGE = ["--reciprocal", "--dim", "200", "--batch", "1024", "--negatives", "100", "--n3", "0.1"]
PROGRAMS: dict[str, tuple[str, list[str], list[str]]] = {  # what is counted; options; those of a quick run
    "kge": ("triples", ["--generate", "--entities", "40000", *KGE], ["--entities", "4000"]),
    "word2vec": ("words", ["--generate", "--words", "2000000", "--vocabulary", "20000", "--format", "binary"],
                 ["--words", "300000", "--vocabulary", "3000"]),
    "mf": ("ratings", ["--generate", "--users", "30000", "--items", "5000", "--n", "1000000", "--rank", "16"], ["--n", "200000"]),
    "ctr": ("examples", ["--generate", "--n", "100000", "--values", "20000", "--rows", "1000000", "--dim", "16"], ["--n", "20000"]),
}
PLACEMENTS = {"one node": ([], []), "two nodes, intent": (["--node-size", "1"], []),
              "two nodes, no intent": (["--node-size", "1"], ["--ahead", "0"])}
MORE_PLACEMENTS = {"mf": {"one node, blocks": ([], ["--mode", "blocks"]),
                          "two nodes, blocks": (["--node-size", "1"], ["--mode", "blocks"])}}  # localize instead of intent


def placements(name: str) -> dict[str, tuple[list[str], list[str]]]:
    return PLACEMENTS | MORE_PLACEMENTS.get(name, {})


def run_once(name: str, placement: str, arguments: argparse.Namespace) -> dict[str, float]:
    _, options, quick = PROGRAMS[name]
    if name == "kge" and arguments.wn18rr is not None:
        options = ["--dataset", str(arguments.wn18rr), *KGE]
    launch, more = placements(name)[placement]
    with tempfile.TemporaryDirectory() as out:
        epochs = str(arguments.epochs)
        command = [str(GODWIT), "run", "-n", "2", *launch, str(ROOT / "apps" / name), *options, *(quick if arguments.quick else []),
                   *more, "--epochs", epochs, "--evaluate-every", epochs, "--save-every", epochs, "--output", out]
        begin, others = time.monotonic(), busy_s() - own_s()
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode != 0:
            raise CannotRun(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        others = (busy_s() - own_s() - others) / (time.monotonic() - begin)
        later = json.loads((Path(out) / "history.json").read_text())[1:]
    return {"items_per_s": median(epoch["items_per_s"] for epoch in later), "local": 100 * median(epoch["local"] for epoch in later),
            "moved": median(epoch["moved"] for epoch in later), "copies": median(epoch["copies"] for epoch in later),
            "others": max(0.0, others)}


def measure_round(arguments: argparse.Namespace, number: int) -> dict[str, Any]:
    found = {}
    for name in arguments.names:
        for placement in placements(name):
            progress(f"round {number + 1} of {arguments.rounds}: {name}, {placement}")
            found[f"{name}, {placement}"] = run_once(name, placement, arguments)
    progress("")
    return found


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    start, load = time.monotonic(), os.getloadavg()[0]
    rounds = [measure_round(arguments, number) for number in range(arguments.rounds)]
    about = {"processor": processor(), "cores": sorted(os.sched_getaffinity(0)), "kernel": kernel(),
             "quick": arguments.quick, "load_before": load, "load_after": os.getloadavg()[0],
             "took_s": time.monotonic() - start}
    return {"about": about, "names": arguments.names, "rounds": rounds}


def make_table(run: dict[str, Any]) -> Table:
    table = Table("Programs on one node and on two", ["", "items/s", "of one node", "local, %", "moved", "copies", "target", "verdict"],
                  notes=["Items: " + ", ".join(f"{PROGRAMS[name][0]} ({name})" for name in run["names"]) + ".  moved, copies: keys in an epoch."])
    for name in run["names"]:
        for placement in placements(name):
            found = [one[f"{name}, {placement}"] for one in run["rounds"]]
            speed = [one["items_per_s"] for one in found]
            share = ratio(speed, [one[f"{name}, one node"]["items_per_s"] for one in run["rounds"]])
            local = Spread(*(pick([one["local"] for one in found]) for pick in (median, min, max)))
            judged = ["", ""]
            if name == "kge" and placement == "two nodes, intent":
                judged = at_least(share, KGE_SHARE)
                table.rows.append([f"{name}, {placement}", None, None, local, None, None, *at_least(local, KGE_LOCAL, " %")])
            table.rows.append([f"{name}, {placement}", Spread(median(speed), min(speed), max(speed)),
                               share, local, f"{median(one['moved'] for one in found):,.0f}",
                               f"{median(one['copies'] for one in found):,.0f}", *judged])
    return table


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The programs in apps/ on one node and on two.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROGRAMS)}; all if none is named")
    add_usual_arguments(parser, "apps", ROOT / "build/bench/bench/apps", 3)
    parser.add_argument("--epochs", type=int, default=4, help="of each run; the first does not count (4)")
    parser.add_argument("--wn18rr", type=Path, metavar="DIR", help="train.txt, valid.txt and test.txt of that graph, for kge")
    parser.add_argument("--quick", action="store_true", help="one round with little data: a look, not a result")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(PROGRAMS)):
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    arguments.names = arguments.names or list(PROGRAMS)
    if arguments.quick:
        arguments.rounds = 1
    if arguments.epochs < 2:
        parser.error(f"--epochs {arguments.epochs}: 2 or more are needed, as the first does not count")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    run = json.loads(arguments.earlier.read_text()) if arguments.earlier else measure(arguments)
    print_about(run)
    return conclude(run, [make_table(run)], arguments, draw_nothing)


if __name__ == "__main__":
    run_main(main)
