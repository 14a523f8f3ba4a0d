"""Runs many seeds of tests/sim/protocol on all processors.

    campaign.py PROTOCOL [--seed 1] [--seeds 1000000] [--jobs N]

Shows how far it is, and stops at the first seed that breaks a promise, with the command that replays it.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import subprocess
import sys
import time

CHUNK = 500


def run(program: str, seed: int, seeds: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, "--seed", str(seed), "--seeds", str(seeds)], capture_output=True, text=True)


def explain(program: str, seed: int, seeds: int) -> str:
    """A run that failed says which seed it was, unless an assertion ended it: then look for it."""
    for one in range(seed, seed + seeds):
        result = run(program, one, 1)
        if result.returncode != 0:
            return (f"{result.stdout}{result.stderr}seed {one} fails; replay it with\n"
                    f"  {program} --seed {one} --seeds 1 --trace")
    return f"seeds {seed} to {seed + seeds - 1} failed together, and none of them alone"


def main() -> int:
    parser = argparse.ArgumentParser(description="Random jobs of the parameter protocol under simulation.")
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    begun = time.monotonic()
    shown = 0.0
    chunks = iter([(seed, min(CHUNK, args.seed + args.seeds - seed))
                   for seed in range(args.seed, args.seed + args.seeds, CHUNK)])
    done = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        def start(chunk: tuple[int, int]) -> concurrent.futures.Future[subprocess.CompletedProcess[str]]:
            future = pool.submit(run, args.program, *chunk)
            running[future] = chunk
            return future

        running: dict[concurrent.futures.Future[subprocess.CompletedProcess[str]], tuple[int, int]] = {}
        for _, chunk in zip(range(2 * args.jobs), chunks):
            start(chunk)
        while running:
            over, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in over:
                chunk = running.pop(future)
                if future.result().returncode != 0:
                    print(f"\n{explain(args.program, *chunk)}", file=sys.stderr)
                    pool.shutdown(cancel_futures=True)
                    return 1
                done += chunk[1]
                following = next(chunks, None)
                if following is not None:
                    start(following)
            now = time.monotonic()
            if now - shown > 5 or not running:
                shown = now
                left = (args.seeds - done) * (now - begun) / done
                print(f"{done:,} of {args.seeds:,} seeds, {done / (now - begun):,.0f} a second, {left / 60:.0f} min left",
                      flush=True)
    print(f"{done:,} seeds, all promises kept, in {(time.monotonic() - begun) / 60:.1f} min")
    return 0


if __name__ == "__main__":
    sys.exit(main())
