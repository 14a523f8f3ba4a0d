"""What it costs to take a tensor in: nanoseconds beyond an empty C call.

    python bench/intake/run.py [--quick] [--only-here]

Each line compares `touch(x)`, which takes x in and gives it back, with
`nothing(x)`, the same call with nothing inside, measured in turns.  Then the
same compiled file is measured with the system's Python, if that has PyTorch.
The exit code is 1 if a target is missed.
"""

import argparse
import array
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time

import godwit
from godwit import _native

SYSTEM_PYTHON = "/usr/bin/python3"


class DLPackOnly:
    """An object of some other library: nothing but __dlpack__."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def subjects():
    """(name, object, target in ns or None)"""
    yield "bytearray", bytearray(64), None
    yield "array.array", array.array("d", range(8)), None
    try:
        import numpy
    except ImportError:
        pass
    else:
        yield "numpy float32 (8, 16)", numpy.ones((8, 16), numpy.float32), 80
        yield "numpy int64 (1024,)", numpy.ones(1024, numpy.int64), 80
    try:
        import torch
    except ImportError:
        return
    has_c_functions = hasattr(torch.Tensor, "__dlpack_c_exchange_api__") or hasattr(
        torch.Tensor, "__c_dlpack_exchange_api__")
    target = 150 if has_c_functions else None
    yield "torch float32 (8, 16)", torch.ones(8, 16), target
    yield "torch int64 (1024,)", torch.ones(1024, dtype=torch.int64), target
    yield "torch, transposed", torch.ones(8, 16).t(), target
    yield "torch, requires grad", torch.ones(8, 16, requires_grad=True), target
    yield "nn.Parameter", torch.nn.Parameter(torch.ones(8, 16)), target
    yield "torch complex64", torch.ones(64, dtype=torch.complex64), None
    yield "DLPack object", DLPackOnly(torch.ones(8, 16)), None


def seconds(function, argument, n):
    start = time.perf_counter()
    for _ in itertools.repeat(None, n):
        function(argument)
    return time.perf_counter() - start


def measure(argument, n, repeats):
    """Quartiles of the cost in ns.  The two are measured right after each other,
    so that a slow moment of the machine hits both."""
    costs = []
    for _ in range(repeats):
        empty = seconds(_native.nothing, argument, n)
        full = seconds(_native.touch, argument, n)
        costs.append((full - empty) / n * 1e9)
    return statistics.quantiles(costs, n=4)


def versions():
    words = [f"Python {sys.version.split()[0]}"]
    for name in ("torch", "numpy"):
        try:
            words.append(f"{name} {__import__(name).__version__}")
        except ImportError:
            words.append(f"no {name}")
    return ", ".join(words)


def table(quick):
    n, repeats = (2000, 21) if quick else (10000, 51)
    missed = 0
    print(versions())
    print(f"  {'ns beyond an empty call':<26} {'median':>8} {'quartiles':>15} {'target':>8}")
    for name, argument, target in subjects():
        low, median, high = measure(argument, n, repeats)
        verdict = "" if target is None else "pass" if median <= target else "MISS"
        missed += verdict == "MISS"
        spread = f"{low:.0f} .. {high:.0f}"
        print(f"  {name:<26} {median:8.0f} {spread:>15} {target or '':>8}  {verdict}".rstrip())
    return missed


def run_elsewhere(python, quick):
    """The same with another Python, which finds this very package and nothing else of ours."""
    with tempfile.TemporaryDirectory() as directory:
        os.symlink(os.path.dirname(godwit.__file__), os.path.join(directory, "godwit"))
        arguments = [python, __file__, "--only-here"] + ["--quick"] * quick
        return subprocess.run(arguments, env={**os.environ, "PYTHONPATH": directory}).returncode


def has_torch(python):
    return os.path.exists(python) and subprocess.run(
        [python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0


def main():
    parser = argparse.ArgumentParser(description="What it costs to take a tensor in.")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--only-here", action="store_true", help="not the system's Python too")
    options = parser.parse_args()

    failed = table(options.quick) > 0
    if not options.only_here and has_torch(SYSTEM_PYTHON):
        print(flush=True)
        failed |= run_elsewhere(SYSTEM_PYTHON, options.quick) != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
