#!/usr/bin/env python3
"""apps/word2vec beside gensim, and on nodes of its own with and without intent.

    python bench/word2vec/run.py [--quick] [--rounds N] [--strict] [--json FILE] [--text FILE --analogies FILE]

What is measured.  Words per second of the text that training goes through, all epochs together, without counting the words
before; and the share of the questions that are answered right after it.  The text is made up by the app (--text: another).
Settings are the same on both sides: 100 entries, window 5, 5 negatives, sample 1e-3, rate from 0.025 to 0.0001, min-count 5.

  gensim   its own environment under build/, made when it is first needed; it reads the text by `corpus_file`, which is its
           faster way.  As many threads as Godwit has processes.
  nodes    The same text on virtual nodes of one process each: keys that are announced, and keys that are pulled from
           wherever they are (--ahead 0).  Local: the share of accesses that needed no message.

How.  A round runs everything once, so ratios compare neighbours in time; figures are medians of the rounds with the least and
the greatest.  Words per second of processor time are told too, for machines that have other work.

Exit code: 0 if everything ran, 1 with --strict if a target was missed, 2 if something could not run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "shared"))

from machine import CannotRun, kernel, processor, progress, run_main  # noqa: E402
from table import Table, conclude, draw_nothing  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
APP = ROOT / "apps/word2vec"
GODWIT = Path(sys.executable).parent / "godwit"
PEER = ROOT / "build/bench-gensim"
PINNED = "gensim==4.4.0"
SETTINGS = {"dim": 100, "window": 5, "negatives": 5, "sample": 1e-3, "rate": 0.025, "least-rate": 1e-4, "min-count": 5,
            "among": 30_000}
TARGET = {"gensim": 1.0, "analogies": 0.9}
LIMIT_S = 3600
# name, processes, options of godwit run, options of the app
ONE_NODE = [(f"{n} process{'es' * (n > 1)}, one node", n, [], []) for n in (1, 2, 4)]
NODES = [(f"{n} nodes, {'announced' if ahead is None else 'not announced'}", n, ["--node-size", "1"],
          [] if ahead is None else ["--ahead", "0"]) for n in (2, 4) for ahead in (None, 0)]

Found = dict[str, float]


# ---- one run -----------------------------------------------------------------------------------------------------


def run(command: Sequence[Any]) -> tuple[str, float]:
    """What it printed, and the processor time that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LIMIT_S,
                              env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    except subprocess.TimeoutExpired:
        raise CannotRun(f"{command} took more than {LIMIT_S} s") from None
    if done.returncode != 0:
        raise CannotRun(f"{command} ended with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def settings(arguments: argparse.Namespace) -> list[str]:
    words = [word for name, value in SETTINGS.items() for word in (f"--{name}", str(value))]
    return [*words, "--epochs", str(arguments.epochs), "--evaluate-every", str(arguments.epochs), "--format", "binary",
            "--save-every", str(arguments.epochs)]


def measure_godwit(arguments: argparse.Namespace, n: int, nodes: list[str], more: list[str]) -> Found:
    output = arguments.work / "godwit"
    _, cpu = run([GODWIT, "run", "-n", n, *nodes, APP, "--text", arguments.text, "--analogies", arguments.analogies,
                  *settings(arguments), *more, "--output", output])
    history = json.loads((output / "history.json").read_text())
    seconds = sum(epoch["seconds"] for epoch in history)
    done = sum(epoch["items_per_s"] * epoch["seconds"] for epoch in history)
    return {"words_per_s": done / seconds, "words_per_cpu_s": done / cpu, "local": history[-1]["local"],
            "analogies": history[-1]["analogies"]}


def measure_gensim(arguments: argparse.Namespace, threads: int) -> Found:
    given = json.dumps(SETTINGS | {"epochs": arguments.epochs})
    said, _ = run([arguments.gensim, HERE / "peer.py", threads, arguments.text, arguments.analogies, given])
    found = json.loads(said.splitlines()[-1])
    arguments.version = found["version"]
    return {**found, "words_per_cpu_s": found["words"] * arguments.epochs / found["cpu_s"]}


# ---- all of them -------------------------------------------------------------------------------------------------


def prepare_gensim() -> Path:
    """The Python of an environment that has gensim: Godwit's own is left alone."""
    python = PEER / "bin/python"
    if not (PEER / "made").exists():
        progress(f"installing {PINNED} into {PEER}")
        venv.create(PEER, with_pip=True, clear=True)
        done = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", PINNED],
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise CannotRun(f"cannot install {PINNED} into {PEER}:\n{done.stderr[-1000:]}")
        (PEER / "made").write_text(PINNED)
    return python


def prepare_text(arguments: argparse.Namespace) -> None:
    if arguments.text is None:
        progress(f"making a text of {arguments.words:,} words up")
        run([sys.executable, APP, "--generate", "--words", arguments.words, "--vocabulary", arguments.vocabulary, "--epochs",
             1, "--evaluate-every", 9, "--format", "binary", "--output", arguments.work / "generated"])
        arguments.text, arguments.analogies = (arguments.work / "generated" / name for name in ("text.txt", "analogies.txt"))


def measure_round(arguments: argparse.Namespace, number: int) -> dict[str, Found]:
    found = {}
    for name, n, nodes, more in [*ONE_NODE, *NODES]:
        progress(f"round {number + 1} of {arguments.rounds}: {name}")
        found[name] = measure_godwit(arguments, n, nodes, more)
        if not nodes:
            progress(f"round {number + 1} of {arguments.rounds}: gensim, {n} threads")
            found[f"gensim {n}"] = measure_gensim(arguments, n)
    progress("")
    return found


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    arguments.work.mkdir(parents=True, exist_ok=True)
    arguments.gensim = prepare_gensim()
    prepare_text(arguments)
    start, load = time.monotonic(), os.getloadavg()[0]
    rounds = [measure_round(arguments, number) for number in range(arguments.rounds)]
    first = rounds[0]["gensim 1"]
    return {"about": {"processor": processor(), "cores": len(os.sched_getaffinity(0)), "kernel": kernel(),
                      "gensim": arguments.version, "words": first["words"], "vocabulary": first["vocabulary"],
                      "epochs": arguments.epochs, "load_before": load, "load_after": os.getloadavg()[0],
                      "took_s": time.monotonic() - start},
            "rounds": rounds}


# ---- tables ------------------------------------------------------------------------------------------------------


def text_of(values: Sequence[float], form: str) -> str:
    middle = f"{statistics.median(values):{form}}"
    return middle if len(values) == 1 else f"{middle} [{min(values):{form}}-{max(values):{form}}]"


def verdict(values: Sequence[float], target: float) -> list[str]:
    return [f">= {target}", "pass" if statistics.median(values) >= target else "miss"]


def peer_table(run: dict[str, Any]) -> Table:
    table = Table("Beside gensim: thousands of words per second", ["", "Godwit", "gensim", "ratio", "target", "verdict", "of processor "
                  "time: Godwit", "gensim", "analogies: Godwit", "gensim", "target", "verdict"],
                  notes=["Processor time: Godwit's is that of the whole job, with starting, reading, saving and the picture; gensim's "
                         "that of training alone."])
    for name, n, _, _ in ONE_NODE:
        ours, theirs = ([found[key] for found in run["rounds"]] for key in (name, f"gensim {n}"))

        def column(side: list[Found], key: str, scale: float = 1e-3) -> list[float]:
            return [figures[key] * scale for figures in side]
        ratios = [a / b for a, b in zip(column(ours, "words_per_s"), column(theirs, "words_per_s"))]
        good = column(ours, "analogies", 1)
        table.rows.append([name, text_of(column(ours, "words_per_s"), ",.0f"), text_of(column(theirs, "words_per_s"), ",.0f"),
                           text_of(ratios, ".1f"), *verdict(ratios, TARGET["gensim"]),
                           text_of(column(ours, "words_per_cpu_s"), ",.0f"), text_of(column(theirs, "words_per_cpu_s"), ",.0f"),
                           text_of(good, ".3f"), text_of(column(theirs, "analogies", 1), ".3f"),
                           *verdict(good, TARGET["analogies"])])
    return table


def node_table(run: dict[str, Any]) -> Table:
    table = Table("One node, and virtual nodes of one process: thousands of words per second",
                  ["", "words/s", "local", "analogies", "target", "verdict"])
    for name, *_ in [*ONE_NODE, *NODES]:
        ours = [found[name] for found in run["rounds"]]
        good = [figures["analogies"] for figures in ours]
        table.rows.append([name, text_of([figures["words_per_s"] * 1e-3 for figures in ours], ",.0f"),
                           text_of([figures["local"] for figures in ours], ".1%"), text_of(good, ".3f"),
                           *verdict(good, TARGET["analogies"])])
    return table


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="apps/word2vec beside gensim, and on nodes of its own.")
    parser.add_argument("--quick", action="store_true", help="one round with a small text: a look, not a result")
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured (3)")
    parser.add_argument("--words", type=int, default=4_000_000, help="of the text that is made up (4,000,000)")
    parser.add_argument("--vocabulary", type=int, default=40_000, help="different ones of them (40,000)")
    parser.add_argument("--epochs", type=int, default=2, help="(2)")
    parser.add_argument("--text", type=Path, metavar="FILE", help="measure with this text; needs --analogies FILE, too")
    parser.add_argument("--analogies", type=Path, metavar="FILE", help="questions about it")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a target is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", default=ROOT / "build/bench-word2vec.json",
                        help="where every figure of every round goes (build/bench-word2vec.json)")
    parser.add_argument("--from", type=Path, metavar="FILE", dest="earlier",
                        help="measure nothing: show an earlier run's --json again")
    parser.set_defaults(plot=None, work=ROOT / "build/bench-word2vec", version="")
    arguments = parser.parse_args()
    if (arguments.text is None) != (arguments.analogies is None):
        parser.error("--text and --analogies go together")
    if arguments.rounds < 1 or arguments.epochs < 1:
        parser.error("--rounds and --epochs: at least 1")
    if arguments.quick:
        arguments.rounds, arguments.words, arguments.vocabulary, arguments.epochs = 1, 500_000, 5000, 5
    return arguments


def main() -> int:
    arguments = parse_arguments()
    run = json.loads(arguments.earlier.read_text()) if arguments.earlier else measure(arguments)
    about = run["about"]
    print(f"{about['processor']}, {about['cores']} cores, Linux {about['kernel']}, gensim {about['gensim']}\n"
          f"a text of {about['words']:,} words, {about['vocabulary']:,} different ones, {about['epochs']} epochs\n"
          f"took {about['took_s']:.0f} s; load {about['load_before']:.1f} before, {about['load_after']:.1f} after")
    return conclude(run, [peer_table(run), node_table(run)], arguments, draw_nothing)


if __name__ == "__main__":
    run_main(main)
