"""Measures PyTorch's own functions, or godwit.Parameters from Python, as it is told.

    tensors.py torch LENGTH KEYS huge|small        on a private array
    tensors.py godwit LENGTH KEYS WORKERS          as a rank of the job that the environment names

It prints a line of JSON when it is ready, and one for each order:

    index_select|index_add uniform|zipf BATCHES    {"ns": [per key]}
    pull|push uniform|zipf BATCHES THREADS         as local.c answers
    one pull|push random|same CALLS                {"ns": of a call with one key}

As in local.c, each batch of 1024 keys is timed by itself, the median counts, and the first third is left out.
One thread computes, results go into memory that is there already, and the loop around the calls with one key
is taken off their time.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

BATCH = 1024
POOL = 4096  # batches; so many that they do not all stay in a cache
HUGE_PAGE = 2 << 20
MADV_COLLAPSE = 25
CPUS = sorted(os.sched_getaffinity(0))


def say(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)


def say_all(found: list[dict[str, object]]) -> None:
    say({what: [one[what] for one in found] for what in found[0]})


def draw(n_keys: int, seed: int) -> dict[str, torch.Tensor]:
    """Batches of keys, by distribution."""
    random = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, n_keys + 1)
    ranks = np.searchsorted(np.cumsum(weights) / weights.sum(), random.random((POOL, BATCH)))
    return {"uniform": torch.from_numpy(random.integers(0, n_keys, (POOL, BATCH))),
            "zipf": torch.from_numpy(random.permutation(n_keys)[np.minimum(ranks, n_keys - 1)])}


class Batches:
    """Hands out one batch after the other, going on where it stopped."""

    def __init__(self, n_keys: int, seed: int) -> None:
        self.pools = draw(n_keys, seed)
        self.keys = torch.full((BATCH,), 0)
        self.at = 0

    def next(self, keys: str) -> torch.Tensor:
        """Always the same tensor, filled anew, and so in the cache as in local.c."""
        self.keys.copy_(self.pools[keys][self.at])
        self.at = (self.at + 1) % POOL
        return self.keys

    def time(self, call: Callable[[torch.Tensor], object], keys: str, n_batches: int) -> dict[str, object]:
        """What one worker adds to an answer."""
        self.call_each(call, keys, n_batches // 3)
        before, begin = involuntary_switches(), time.perf_counter_ns()
        took = self.call_each(call, keys, n_batches)
        return {"ns": median(took) / BATCH, "span": [begin, time.perf_counter_ns()],
                "lost": involuntary_switches() - before}

    def call_each(self, call: Callable[[torch.Tensor], object], keys: str, n_batches: int) -> list[int]:
        clock, took = time.perf_counter_ns, []
        for _ in range(n_batches):
            batch = self.next(keys)
            start = clock()
            call(batch)
            took.append(clock() - start)
        return took


def involuntary_switches() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def collapse(array: torch.Tensor) -> int:
    """Put it into huge pages as far as the system does it; returns how many bytes."""
    libc = ctypes.CDLL(None, use_errno=True)
    begin = -(-array.data_ptr() // HUGE_PAGE) * HUGE_PAGE
    end = (array.data_ptr() + array.numel() * array.element_size()) // HUGE_PAGE * HUGE_PAGE
    madvise = libc.madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return sum(HUGE_PAGE for at in range(begin, end, HUGE_PAGE) if madvise(at, HUGE_PAGE, MADV_COLLAPSE) == 0)


def measure_torch(length: int, n_keys: int, pages: str) -> None:
    table = torch.full((n_keys, length), 0.0)
    huge_bytes = collapse(table) if pages == "huge" else 0
    batches = Batches(n_keys, 1)
    rows, updates = torch.full((BATCH, length), 0.0), torch.full((BATCH, length), 0.0)
    calls = {"index_select": lambda keys: torch.index_select(table, 0, keys, out=rows),
             "index_add": lambda keys: table.index_add_(0, keys, updates)}
    say({"torch": torch.__version__, "huge_bytes": huge_bytes})
    for line in sys.stdin:
        kind, keys, n_batches = line.split()
        say_all([batches.time(calls[kind], keys, int(n_batches))])


def time_one(call: Callable[[torch.Tensor, torch.Tensor], object], row: torch.Tensor, batches: Batches,
             which: str, n_calls: int) -> float:
    """Median ns of a call with one key, without the loop around it."""
    clock, took = time.perf_counter_ns, []
    key = torch.full((1,), 0)
    slot = memoryview(key.numpy())  # the quickest way to put another key into the same tensor
    for _ in range(n_calls // BATCH):
        keys = batches.next("uniform").tolist()
        if which == "same":
            keys = keys[:1] * BATCH
        start = clock()
        for slot[0] in keys:
            pass
        between = clock()
        for slot[0] in keys:
            call(key, row)
        took.append(clock() - between - (between - start))
    return median(took) / BATCH


def together(batches: list[Batches], calls: list[Callable[[torch.Tensor], object]], keys: str,
             n_batches: int) -> list[dict[str, object]]:
    """What Batches.time() finds, of threads that begin at once, each on a core of its own."""
    found: list[dict[str, object]] = [{}] * len(calls)
    start = threading.Barrier(len(calls))

    def run(i: int) -> None:
        os.sched_setaffinity(0, {CPUS[i % len(CPUS)]})  # of this thread
        start.wait()
        found[i] = batches[i].time(calls[i], keys, n_batches)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(1, len(calls))]
    for thread in threads:
        thread.start()
    run(0)
    for thread in threads:
        thread.join()
    return found


def settle(kv) -> None:
    """As in local.c."""
    before, still = -1, 0
    while still < 30 and before < kv.stats()["shared_bytes"] - 2 * HUGE_PAGE:
        now = kv.stats()["huge_page_bytes"]
        still = still + 1 if now == before else 0
        before = now
        time.sleep(0.1)


def measure_godwit(length: int, n_keys: int, n_workers: int) -> None:
    import godwit

    with godwit.Parameters(n_keys, length, workers=n_workers) as kv:
        workers = [kv.worker() for _ in range(n_workers)]
        batches = [Batches(n_keys, seed) for seed in range(n_workers)]
        rows = [torch.full((BATCH, length), 0.0) for _ in range(n_workers)]
        settle(kv)
        calls = {name: [lambda keys, call=getattr(worker, name), values=values: call(keys, values)
                        for worker, values in zip(workers, rows)] for name in ("pull", "push")}
        say({"torch": torch.__version__, "python": sys.version.split()[0],
             "store_huge_bytes": kv.stats()["huge_page_bytes"]})
        for line in sys.stdin:
            kind, *rest = line.split()
            if kind == "one":
                call = getattr(workers[0], rest[0])
                say({"ns": time_one(call, rows[0][0], batches[0], rest[1], int(rest[2]))})
            else:
                keys, n_batches, n_threads = rest[0], int(rest[1]), int(rest[2])
                say_all(together(batches[:n_threads], calls[kind][:n_threads], keys, n_batches))
        for worker in workers:
            worker.close()


def main() -> None:
    torch.set_num_threads(1)
    who, length, n_keys = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if who == "torch":
        measure_torch(length, n_keys, sys.argv[4])
    else:
        measure_godwit(length, n_keys, int(sys.argv[4]))


if __name__ == "__main__":
    main()
