#!/usr/bin/env python3
"""A store of parameters on one node beside plain C loops and beside PyTorch's own functions, in one run.

    python bench/params-local/run.py [--quick] [--only speed|two|python|pages ...] [--strict] [--json FILE] ...

What is measured.  float32, batches of 1024 random keys, vectors of 16, 64 and 512 entries; 1 million keys,
200,000 of length 512.  Times are per key.

  speed   One worker, pull and push (local.c), beside the limit, gather and scatter-add by a plain loop over a
          private array (loops.c), and beside torch.index_select and index_add_ with one thread (tensors.py).
          Uniform keys; the same with pages of 4 KiB; Zipf(1.0) keys; a store that fits the cache.
          Resident memory per key beyond its values.
  two     Two worker threads, and two worker processes, beside one.
  python  From Python: pull of one key and of 1024 keys, by one thread and by two, beside the same from C.  A
          Python process and a C program are the two ranks of one job, so they read the same memory.
  pages   How long it takes to put a store of 1 GB into huge pages, and what a worker meets meanwhile.

How.  A round runs every kind of call once, each for some milliseconds, one right after the other; ratios are
taken within a round.  Tables have medians over the rounds and, in brackets, the quartiles: on a machine that
others use too the extremes are theirs.  Each batch is timed by itself and the median of a kind's batches counts.

Two workers have a core each, and are two only while both run.  Where it is about two, rounds are shorter and four
times as many, and those are left out in which the two did not work at about the same time or somebody else took a
core from them.  Where fewer than 5 are left, the verdict is `unclear`.

The limit is the best of six loops: without prefetching, and with prefetching 4, 8, 16, 24 or 32 keys ahead.  The
best is the one with the least median over all rounds; the loop's add is vectorised as the store's is.  The private
arrays have pages like the store's: huge ones where the store got them, and the store is waited for until it did.

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

import plot  # noqa: E402
import report  # noqa: E402
from machine import kernel, processor, progress, run_main, two_cores  # noqa: E402
from programs import HERE, ROOT, Program, started  # noqa: E402
from report import AHEADS, CACHE_KEYS, GIGABYTE_KEYS, N_KEYS  # noqa: E402
from table import conclude  # noqa: E402

GODWIT = ROOT / "build/bench/bench/params-local"

Round = dict[str, float]


class Bench:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.program, self.rounds, self.quick = arguments.godwit, arguments.rounds, arguments.quick
        self.about: dict[str, Any] = {}

    def n_batches(self, length: int) -> int:
        """Some milliseconds of them, and enough to fill the caches anew."""
        return (60 if self.quick else 200) if length < 512 else (20 if self.quick else 60)

    def each_round(self, what: str, n_rounds: int):
        for number in range(n_rounds):
            progress(f"{what}: round {number + 1} of {n_rounds}")
            yield number
        progress("")

    # ------------------------------------------------------------------ speed

    def speed(self, length: int, n_keys: int, pages: str, kinds_of_keys: tuple[str, ...]) -> dict[str, Any]:
        """What the programs said of themselves, and for each kind of keys the rounds: ns by kind of call."""
        what = f"length {length}, {n_keys:,} keys, {pages} pages"
        progress(f"{what}: opening")
        words = ["small"] if pages == "small" else []
        with started([self.program, length, n_keys, 1, *words]) as [(c, c_said)]:
            torch_pages = "huge" if c_said["store_huge_bytes"] else "small"
            with started([sys.executable, HERE / "tensors.py", "torch", length, n_keys, torch_pages]) as [(t, t_said)]:
                self.about["torch"] = t_said["torch"]
                found = {keys: [self.speed_round(c, t, length, keys, number % 2 == 1)
                                for number in self.each_round(f"{what}, {keys} keys", self.rounds)]
                         for keys in kinds_of_keys}
        return {"length": length, "n_keys": n_keys, "pages": pages, "c": c_said, "torch": t_said, "rounds": found}

    def speed_round(self, c: Program, torch: Program, length: int, keys: str, backwards: bool) -> Round:
        n = self.n_batches(length)
        calls = [*((f"gather {ahead}", c, f"gather {ahead} {keys} {n} 1 0") for ahead in AHEADS),
                 ("pull", c, f"pull 0 {keys} {n} 1 0"),
                 ("index_select", torch, f"index_select {keys} {n}"),
                 ("push", c, f"push 0 {keys} {n} 1 0"),
                 *((f"scatter {ahead}", c, f"scatter {ahead} {keys} {n} 1 0") for ahead in AHEADS),
                 ("index_add", torch, f"index_add {keys} {n}")]
        # Every other round in the opposite order, so that none always follows the same one.
        return {kind: program.ask(order)["ns"][0] for kind, program, order in (calls[::-1] if backwards else calls)}

    # -------------------------------------------------------------------- two

    def two(self, length: int) -> dict[str, Any]:
        """By kind of keys, the rounds: answers by kind of call and number of workers."""
        n_keys, n, n_rounds = N_KEYS[length], self.n_batches(length) // 5, 4 * self.rounds
        found: dict[str, Any] = {"length": length, "threads": {}, "processes": {}}
        progress(f"two threads, length {length}: opening")
        with started([self.program, length, n_keys, 2]) as [(c, _)]:
            for keys in ("uniform", "zipf"):
                found["threads"][keys] = [
                    {f"{kind} {workers}": c.ask(f"{kind} 16 {keys} {n} {workers} 0")
                     for kind in ("pull", "push", "gather", "scatter") for workers in turns(number)}
                    for number in self.each_round(f"two threads, length {length}, {keys} keys", n_rounds)]
        progress(f"two processes, length {length}: opening")
        command = [self.program, length, n_keys, 1]
        with started(command, command, job=True) as [(a, _), (b, _)]:
            for keys in ("uniform", "zipf"):
                rounds = found["processes"][keys] = []
                for number in self.each_round(f"two processes, length {length}, {keys} keys", n_rounds):
                    rounds.append({f"{kind} {workers}": ask_together([a, b][:workers], f"{kind} 0 {keys} {n} 1")
                                   for kind in ("pull", "push") for workers in turns(number)})
        return found

    # ----------------------------------------------------------------- python

    def python(self) -> list[dict[str, Any]]:
        """The rounds: answers by language, kind of call and number of threads."""
        length, n, calls = 64, self.n_batches(64) // 5, 20 * 1024
        progress("from Python: opening")
        with started([sys.executable, HERE / "tensors.py", "godwit", length, N_KEYS[length], 2],
                     [self.program, length, N_KEYS[length], 2], job=True) as [(python, said), (c, _)]:
            self.about["python"] = said
            rounds = []
            for number in self.each_round("from Python", 4 * self.rounds):
                found = {f"{who} one {which}": program.ask(f"one pull {which} {calls}")
                         for which in ("same", "random") for who, program in (("c", c), ("python", python))}
                for kind in ("pull", "push"):
                    for workers in turns(number):
                        found[f"c {kind} {workers}"] = c.ask(f"{kind} 0 uniform {n} {workers} 0")
                        found[f"python {kind} {workers}"] = python.ask(f"{kind} uniform {n} {workers}")
                rounds.append(found)
        return rounds

    # ------------------------------------------------------------------ pages

    def pages(self) -> dict[str, Any]:
        """A store of 1 GB: what is seen while it is put into huge pages, by how many workers pull meanwhile."""
        found: dict[str, Any] = {}
        for workers in (0, 1, 2):
            progress(f"huge pages, {workers} workers pulling")
            words = [] if workers == 0 else ["now"]
            with started([self.program, 64, GIGABYTE_KEYS, 2, *words]) as [(c, said)]:
                seconds = 5 if self.quick else 20
                found[str(workers)] = {**said, "watch": c.ask(f"watch {seconds} {workers}")["watch"] if workers else []}
        progress("")
        return found


def turns(number: int) -> tuple[int, int]:
    """One worker and two, in an order that changes: who comes second finds more in the cache."""
    return (1, 2) if number % 2 == 0 else (2, 1)


def ask_together(programs: list[Program], order: str) -> dict[str, Any]:
    for program in programs:
        program.tell(f"{order} {int(len(programs) > 1)}")
    answers = [program.answer() for program in programs]
    return {what: [one for answer in answers for one in answer[what]] for what in answers[0]}


# ---------------------------------------------------------------------- main


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Local access to parameters beside plain loops and PyTorch.")
    parser.add_argument("--godwit", type=Path, default=GODWIT, metavar="PROGRAM", help="params-local as meson built it")
    parser.add_argument("--rounds", type=int, default=31, help="how often everything is measured (31)")
    parser.add_argument("--quick", action="store_true", help="five rounds of short runs: a look, not a result")
    parser.add_argument("--only", nargs="+", choices=("speed", "two", "python", "pages"), help="these parts only")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a target is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", default=ROOT / "build/bench-params-local.json",
                        help="where every figure of every round goes (build/bench-params-local.json)")
    parser.add_argument("--plot", type=Path, metavar="FILE", default=ROOT / "build/bench-params-local.svg",
                        help="where the picture goes, .svg or .png (build/bench-params-local.svg)")
    parser.add_argument("--from", type=Path, metavar="FILE", dest="earlier",
                        help="measure nothing: show an earlier run's --json again")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    if arguments.quick:
        arguments.rounds = min(arguments.rounds, 5)
    arguments.godwit = arguments.godwit.resolve()
    if not arguments.earlier and not arguments.godwit.exists():
        parser.error(f"there is no {arguments.godwit}; configure with -Dbench=true")
    return arguments


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    cores = two_cores()
    os.sched_setaffinity(0, cores)
    start, load = time.monotonic(), os.getloadavg()[0]
    bench = Bench(arguments)
    parts = arguments.only or ("speed", "two", "python", "pages")
    run: dict[str, Any] = {"about": bench.about, "speed": [], "two": [], "python": [], "pages": {}}
    if "speed" in parts:
        run["speed"] = [bench.speed(length, n_keys, "huge", ("uniform", "zipf")) for length, n_keys in N_KEYS.items()]
        run["speed"] += [bench.speed(length, n_keys, "small", ("uniform",)) for length, n_keys in N_KEYS.items()]
        run["speed"] += [bench.speed(64, CACHE_KEYS, "small", ("uniform",))]
    if "two" in parts:
        run["two"] = [bench.two(length) for length in N_KEYS]
    if "python" in parts:
        run["python"] = bench.python()
    if "pages" in parts:
        run["pages"] = bench.pages()
    bench.about.update({"processor": processor(), "cores": cores, "kernel": kernel(), "quick": arguments.quick,
                        "rounds": arguments.rounds, "load_before": load, "load_after": os.getloadavg()[0],
                        "took_s": time.monotonic() - start})
    return run


def main() -> int:
    arguments = parse_arguments()
    run = json.loads(arguments.earlier.read_text()) if arguments.earlier else measure(arguments)
    tables = report.make_tables(run)
    report.print_about(run)
    return conclude(run, tables, arguments, plot.draw)


if __name__ == "__main__":
    run_main(main)
