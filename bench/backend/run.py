"""What the workbench itself costs.

    bench/backend/run.py [--lib openblas-serial] [--sizes 512,1024] [--rounds 120] [--runs 7] [--no-profile]

routing   `torch.mm` under `use()` against the library's own sgemm called by ctypes, same process, same
          arrays, one call of each in turn; processor time of the thread, median of the ratios.  Also with the
          result in a new tensor, whose memory the library's own call does not have to fetch.
          After a large product neither PyTorch's code nor ours is in the caches: what a call then takes is told too.
profile   the same convolution program with and without `godwit profile`, in turn; processor time in the loop.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import time

import godwit.backend

WARM_UP = 3  # rounds that do not count

CONV = """
import time, torch
torch.set_num_threads(1)
torch.manual_seed(0)
layer = torch.nn.Conv2d(64, 64, 3, padding=1)
x = torch.randn(4, 64, 56, 56)
import godwit.backend
with torch.no_grad(), godwit.backend.use({path!r}, numpy=False):
    layer(x)
    begun = time.process_time()
    for _ in range({n}):
        layer(x)
    print("LOOP", time.process_time() - begun)
"""


def direct(path: str):
    """The library's own sgemm, with its arguments made once."""
    function = ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW).sgemm_
    function.restype = None

    def bind(a, b, c):
        n = ctypes.c_int(a.shape[0])
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        no = ctypes.c_char_p(b"N")
        ref = ctypes.byref
        return lambda: function(no, no, ref(n), ref(n), ref(n), ref(one), ctypes.c_void_p(b.data_ptr()), ref(n),
                                ctypes.c_void_p(a.data_ptr()), ref(n), ref(zero), ctypes.c_void_p(c.data_ptr()), ref(n))
    return bind


def times_of(calls: dict, rounds: int) -> dict[str, list[float]]:
    """Processor time of each call, round after round; who is first takes turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for i in range(rounds + WARM_UP):
        for name in names[i % len(names):] + names[:i % len(names)]:
            begun = time.thread_time()
            calls[name]()
            times[name].append(time.thread_time() - begun)
    return {name: found[WARM_UP:] for name, found in times.items()}


def routing(name: str, sizes: list[int], rounds: int) -> None:
    import torch

    library = godwit.backend.find(name)
    bind = direct(library.path)
    for size in sizes:
        a, b, c = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
        with torch.no_grad(), godwit.backend.use(library.path, numpy=False) as blas:
            times = times_of({"directly": bind(a, b, c), "routed": lambda: torch.mm(a, b, out=c),
                              "routed, new": lambda: torch.mm(a, b)}, rounds)
            assert blas.products == 2 * (rounds + WARM_UP)
            routed = torch.mm(a, b)
            bind(a, b, c)()
            assert torch.equal(routed, c)

        def more(which: str) -> str:
            ratios = [mine / own for mine, own in zip(times[which], times["directly"])]
            return f"{100 * (statistics.median(ratios) - 1):+.2f} %"
        print(f"routing, {name}, {size}: {1e3 * statistics.median(times['directly']):.2f} ms directly, routed into the same "
              f"memory {more('routed')} (target: below 2 %), into a new tensor {more('routed, new')} (medians of {rounds})",
              flush=True)


def after_products(name: str, size: int, rounds: int) -> None:
    """What a call costs beside its product: tiny ones, each right after a large one, which leaves no code in the caches."""
    import torch

    library = godwit.backend.find(name)
    bind = direct(library.path)
    large = bind(*torch.randn(3, size, size))
    a, b, c = torch.randn(3, 8, 8)
    calls = {"directly": bind(a, b, c), "by torch.mm": lambda: torch.mm(a, b)}

    def measure() -> dict[str, float]:
        times: dict[str, list[float]] = {which: [] for which in calls}
        for _ in range(rounds):
            for which, call in calls.items():
                large()
                begun = time.perf_counter()
                call()
                times[which].append(time.perf_counter() - begun)
        return {which: 1e6 * statistics.median(found) for which, found in times.items()}

    with torch.no_grad():
        plain = measure()
        with godwit.backend.use(library.path, numpy=False):
            routed = measure()
    print(f"an 8 x 8 product right after one of {size}: {plain['directly']:.0f} us directly, {plain['by torch.mm']:.0f} by torch.mm "
          f"as it is, {routed['by torch.mm']:.0f} by torch.mm routed (medians of {rounds})", flush=True)


def profiling(name: str, runs: int) -> None:
    path = godwit.backend.find(name).path
    program = [sys.executable, "-c", CONV.format(path=path, n=100)]
    profiled = [sys.executable, "-m", "godwit", "profile", "--lib", "libopenblas", "--", *program]
    times: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(runs):
        for key, command in (("without", program), ("with", profiled)):
            out = subprocess.run(command, capture_output=True, text=True, check=True)
            times[key].append(next(float(line.split()[1]) for line in out.stdout.splitlines() if line.startswith("LOOP")))
            said = [line for line in out.stderr.splitlines() if line.startswith("overhead")]
    ratios = [with_ / without for without, with_ in zip(times["without"], times["with"])]
    print(f"profile, conv2d: {statistics.median(times['without']):.3f} s without; with it "
          f"{100 * (statistics.median(ratios) - 1):+.2f} % (target: below 5 %; median of {runs}, {100 * (min(ratios) - 1):+.2f} to "
          f"{100 * (max(ratios) - 1):+.2f}); the profile itself says: {said[0] if said else '?'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", default="openblas-serial")
    parser.add_argument("--sizes", default="512,1024")
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--no-profile", action="store_true")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    routing(options.lib, sizes, options.rounds)
    after_products(options.lib, sizes[0], options.rounds)
    if not options.no_profile:
        profiling(options.lib, options.runs)


if __name__ == "__main__":
    main()
