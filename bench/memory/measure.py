"""One process of the benchmark of whole memory: told by run.py what to measure, prints a line of JSON.

    godwit run -n 2 measure.py LOOPS ROUNDS near|far LENGTH ROWS BATCH
"""

from __future__ import annotations

import ctypes
import json
import random
import statistics
import sys
import time

import torch

import godwit
from godwit import memory
from godwit.comm import COMM_WORLD

MADV_HUGEPAGE = 14
HUGE = 2**21
HUGE_PATIENCE_S = 60
LISTED_ROWS = 4_000_000  # in all lists of indices together: no row is still in a cache when its list comes again


class Table(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def huge(tensor: torch.Tensor) -> torch.Tensor:
    """A private tensor with pages like the shared one's."""
    address, n = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    begin, end = -(-address // HUGE) * HUGE, (address + n) // HUGE * HUGE
    if end > begin:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), MADV_HUGEPAGE)
    return tensor.fill_(1.0)


def wait_for_pages(table: memory.Memory, row_bytes: int) -> float:
    """Until the memory is in huge pages, which takes seconds a gigabyte; how much is, of this rank's rows."""
    local = table.local
    local.fill_(1.0)
    address, n = local.data_ptr(), max(1, len(local) * row_bytes)
    limit = time.monotonic() + HUGE_PATIENCE_S
    share = 0.0
    while share < 1 - 2 * HUGE / n and time.monotonic() < limit and n > 4 * HUGE:
        inside, found = False, 0
        for line in open("/proc/self/smaps"):
            head = line.split()[0]
            if "-" in head and not head.endswith(":"):
                low, high = (int(word, 16) for word in head.split("-"))
                inside = low < address + n and high > address
            elif inside and head == "ShmemPmdMapped:":
                found += int(line.split()[1]) * 1024
        share = found / n
        time.sleep(0.2)
        local[::1024 // (row_bytes // 64 or 1) or 1, 0].sum()
    return share


class Bench:
    def __init__(self, loops: str, rounds: int, length: int, rows: int, batch: int):
        self.loops = ctypes.CDLL(loops)
        self.rounds, self.length, self.rows, self.batch = rounds, length, rows, batch
        draw = torch.Generator().manual_seed(COMM_WORLD.rank)
        self.lists = [torch.randint(rows, (batch,), generator=draw) for _ in range(max(8, LISTED_ROWS // batch))]
        self.next = 0
        self.out = huge(torch.empty(batch, length))
        self.calls = max(3, min(60, 2_000_000 // (batch * max(16, length) // 16)))

    def loop(self, table: torch.Tensor, gathers: bool, ahead: int):
        function = self.loops.loop_gather if gathers else self.loops.loop_scatter_add
        function.argtypes = [Table, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
        function.restype = None
        what = Table(table.data_ptr(), self.length)
        return lambda rows: function(what, rows.data_ptr(), self.batch, ahead, self.out.data_ptr())

    def time(self, call) -> float:
        """Nanoseconds a row: the median of some calls."""
        times = []
        for _ in range(self.calls):
            rows = self.lists[self.next % len(self.lists)]
            self.next += 1
            started = time.perf_counter_ns()
            call(rows)
            times.append(time.perf_counter_ns() - started)
        return statistics.median(times) / self.batch

    def run(self, kinds) -> dict[str, list[float]]:
        """Round after round, each kind right after another one, in an order that changes, so that none always
        follows the same one: what that leaves in the caches may matter.  The same order on all ranks."""
        for call in kinds.values():
            call(self.lists[0])
        found: dict[str, list[float]] = {name: [] for name in kinds}
        order = random.Random(1)
        for _ in range(self.rounds):
            for name in order.sample(list(kinds), len(kinds)):
                found[name].append(self.time(kinds[name]))
        return found


def near(bench: Bench) -> dict[str, list[float]]:
    """One rank measures; half of the rows are the other's, which sleeps."""
    shape = (bench.rows, bench.length)
    with memory.empty(shape, kind="continuous") as continuous, memory.empty(shape, kind="chunked") as chunked:
        share = min(wait_for_pages(continuous, bench.length * 4), wait_for_pages(chunked, bench.length * 4))
        COMM_WORLD.Barrier()
        found: dict[str, list[float]] = {}
        if COMM_WORLD.rank == 0:
            private = huge(torch.empty(shape))
            kinds = {}
            for gathers, word in ((True, "gather"), (False, "add")):
                for kind, table in (("continuous", continuous), ("chunked", chunked)):
                    kinds[f"{word} {kind}"] = (
                        (lambda rows, t=table: t.gather(rows, out=bench.out)) if gathers
                        else (lambda rows, t=table: t.scatter_add(bench.out, rows)))
                kinds[f"{word} torch"] = (
                    (lambda rows: torch.index_select(private, 0, rows, out=bench.out)) if gathers
                    else (lambda rows: private.index_add_(0, rows, bench.out)))
                kinds[f"{word} loop"] = bench.loop(private, gathers, 0)
                kinds[f"{word} loop16"] = bench.loop(private, gathers, 16)
            found = bench.run(kinds)
            found["huge"] = [share]
        COMM_WORLD.Barrier()
        return found


def far(bench: Bench) -> dict[str, list[float]]:
    """Both ranks at once: the distributed memory, and a continuous one of the same size that each has to itself."""
    shape = (bench.rows, bench.length)
    alone = COMM_WORLD.Split(COMM_WORLD.rank)
    with memory.empty(shape, kind="distributed") as distributed, memory.empty(shape, comm=alone) as continuous:
        share = min(wait_for_pages(distributed, bench.length * 4), wait_for_pages(continuous, bench.length * 4))
        COMM_WORLD.Barrier()
        kinds = {}
        for kind, table in (("distributed", distributed), ("continuous", continuous)):
            kinds[f"gather {kind}"] = lambda rows, t=table: t.gather(rows, out=bench.out)
            kinds[f"add {kind}"] = lambda rows, t=table: t.scatter_add(bench.out, rows)
        found = bench.run(kinds)
        found["huge"] = [share]
        COMM_WORLD.Barrier()
        return found


def main() -> None:
    loops, rounds, where, length, rows, batch = sys.argv[1:]
    torch.set_num_threads(1)
    godwit.init()
    bench = Bench(loops, int(rounds), int(length), int(rows), int(batch))
    found = near(bench) if where == "near" else far(bench)
    if COMM_WORLD.rank == 0:
        print("FOUND " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
