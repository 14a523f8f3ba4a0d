#!/usr/bin/env python3
"""Random rows of whole memory beside torch.index_select, index_add_ and bare C loops, in one run.

    python bench/memory/run.py [--quick] [--rounds N] [--lengths 16,64,512] [--strict] [--json FILE]

What is measured.  float32, rows of 16, 64 and 512 entries, 1 million and 10 million rows (512 entries: 1 million
only, which is 2 GB), batches of 1,000 and 100,000 uniform rows.  Times are per row, by one thread of one process.

  near   Two ranks on one node; one measures, and half of the rows are the other's.  gather and scatter-add of
         continuous and chunked memory, beside PyTorch's functions and C loops over a private tensor.
  far    Two virtual nodes of one rank; both measure at the same time.  Distributed memory, where half of the rows
         come by messages, beside continuous memory that each rank has to itself.

How.  A round runs every kind of call some times, one right after the other; the medians of a round give ratios, and
the table has the median of the ratios with its quartiles.  The bare loop has no prefetching; that with prefetching,
16 rows ahead, is told too.  The private tensor gets huge pages if the system allows, as whole memory does.

Exit code: 0 if everything ran, 1 with --strict if a target was missed, 2 if something could not run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "shared"))

from machine import CannotRun, processor, progress  # noqa: E402
from table import Table, count, short  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LOOPS = ROOT / "build/bench/bench/libmemory-loops.so"
GODWIT = Path(sys.executable).parent / "godwit"
TARGETS = {"torch": 1.0, "loop": 0.85, "far": 0.40}

Found = dict[str, list[float]]


def measure(arguments: argparse.Namespace, where: str, length: int, rows: int, batch: int) -> Found:
    nodes = ["--node-size", "1"] if where == "far" else []
    argv = [GODWIT, "run", "-n", "2", *nodes, HERE / "measure.py", LOOPS, arguments.rounds, where, length, rows, batch]
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=1800,
                          env=os.environ | {"OMP_NUM_THREADS": "1"})
    for line in done.stdout.splitlines():
        if "FOUND " in line:
            return json.loads(line.partition("FOUND ")[2])
    raise CannotRun(f"{where}, length {length}, {rows} rows: {done.stderr[-500:]}")


def ratio(found: Found, ours: str, theirs: str) -> tuple[float, str]:
    """How fast ours is as a share of theirs: the median over the rounds, and a text with the quartiles."""
    ratios = [b / a for a, b in zip(found[ours], found[theirs])]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return statistics.median(ratios), f"{short(middle)} [{short(low)}-{short(high)}]"


def judged(value: float, target: float) -> str:
    return "pass" if value >= target else "miss"


def row_of(found: Found, word: str, kind: str, what: list[str]) -> list:
    ours = f"{word} {kind}"
    torch, torch_text = ratio(found, ours, f"{word} torch")
    loop, loop_text = ratio(found, ours, f"{word} loop")
    return [*what, kind, short(statistics.median(found[ours])), torch_text, judged(torch, TARGETS["torch"]), loop_text,
            judged(loop, TARGETS["loop"]), ratio(found, ours, f"{word} loop16")[1], short(found["huge"][0])]


def sizes(arguments: argparse.Namespace) -> list[tuple[int, int, int]]:
    lengths = [int(word) for word in arguments.lengths.split(",")]
    tables = [1_000_000] if arguments.quick else [1_000_000, 10_000_000]
    return [(length, rows, batch) for length in lengths for rows in tables for batch in (1_000, 100_000)
            if length * rows <= 640_000_000]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 million rows only, fewer rounds")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--lengths", default="16,64,512")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--json", type=Path, default=ROOT / "build/bench/memory.json")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (5 if arguments.quick else 9)
    head = ["call", "length", "rows", "batch", "kind", "ns/row", "/ torch", "verdict", "/ C loop", "verdict",
            "/ prefetching loop", "huge pages"]
    near = Table("Whole memory on one node: speed as a share of PyTorch's and of a C loop's", head)
    far = Table("Distributed over two virtual nodes: speed as a share of continuous memory's",
                ["call", "length", "rows", "batch", "ns/row", "/ continuous", "verdict", "huge pages"])
    try:
        for length, rows, batch in sizes(arguments):
            what = [str(length), f"{rows:,}", f"{batch:,}"]
            progress(f"length {length}, {rows:,} rows, batches of {batch:,}")
            found = measure(arguments, "near", length, rows, batch)
            for word, name in (("gather", "gather"), ("add", "scatter_add")):
                for kind in ("continuous", "chunked"):
                    near.rows.append(row_of(found, word, kind, [name, *what]))
                    print(*near.rows[-1], file=sys.stderr, flush=True)
            found = measure(arguments, "far", length, rows, batch)
            for word, name in (("gather", "gather"), ("add", "scatter_add")):
                value, text = ratio(found, f"{word} distributed", f"{word} continuous")
                far.rows.append([name, *what, short(statistics.median(found[f"{word} distributed"])), text,
                                 judged(value, TARGETS["far"]), short(found["huge"][0])])
                print(*far.rows[-1], file=sys.stderr, flush=True)
        progress("")
    except (CannotRun, subprocess.TimeoutExpired) as reason:
        print(f"cannot run: {reason}", file=sys.stderr)
        return 2
    print(processor())
    near.notes = [f"targets: / torch at least {TARGETS['torch']:.2f}, / C loop at least {TARGETS['loop']:.2f}"]
    far.notes = [f"target: at least {TARGETS['far']:.2f}"]
    for table in (near, far):
        table.print()
    passed, all_judged = count([near, far])
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps([near.as_dict(), far.as_dict()], indent=1) + "\n")
    print(f"\n{passed} of {all_judged} targets met")
    return 1 if arguments.strict and passed < all_judged else 0


if __name__ == "__main__":
    sys.exit(main())
