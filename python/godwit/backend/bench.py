"""`godwit backend bench`: how fast products and convolutions are, by library, shape, type and number of threads."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from typing import Callable, Iterable, Optional, Sequence

from .. import _native
from .libraries import Library

GEMM_SHAPES = "128,256,512,1024"
# ResNet-50's different 3 x 3 and 7 x 7 layers, and the 1 x 1 ones of each stage: c_in, size, c_out, kernel, stride.
RESNET_50 = ((3, 224, 64, 7, 2), (64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1), (256, 56, 128, 1, 1),
             (128, 56, 128, 3, 2), (128, 28, 128, 3, 1), (128, 28, 512, 1, 1), (256, 28, 256, 3, 2),
             (256, 14, 256, 3, 1), (256, 14, 1024, 1, 1), (512, 14, 512, 3, 2), (512, 7, 512, 3, 1),
             (512, 7, 2048, 1, 1))


@dataclass(frozen=True)
class Shape:
    """What is measured: `key` is what the C functions take."""

    label: str
    key: tuple
    operations: float


@dataclass
class Row:
    library: str
    described: str
    shape: str
    dtype: str
    threads: int
    best: float = 0.0  # GFLOP/s
    median: float = 0.0
    worst: float = 0.0
    share: float = 0.0  # of the peak
    error: float = 0.0
    tolerance: float = 0.0
    problem: str = ""

    @property
    def correct(self) -> bool:
        return not self.problem and self.error <= self.tolerance

    @property
    def spread(self) -> float:
        """How far apart the slowest and the fastest repeat are, as a share of the median."""
        return (self.best - self.worst) / self.median if self.median else 0.0


@dataclass
class Bench:
    operation: str
    rows: list[Row] = field(default_factory=list)
    peaks: dict[str, float] = field(default_factory=dict)  # "float32 x 2" -> GFLOP/s

    def ranking(self) -> list[tuple[str, float]]:
        """Libraries by the geometric mean of their medians, best first; only those that are right everywhere."""
        medians: dict[str, list[float]] = {}
        wrong = {row.library for row in self.rows if not row.correct}
        for row in self.rows:
            if row.library not in wrong:
                medians.setdefault(row.library, []).append(row.median)
        means = {name: 2.718281828459045 ** (sum(map(_log, values)) / len(values)) for name, values in medians.items()}
        return sorted(means.items(), key=lambda pair: -pair[1])


def _log(x: float) -> float:
    from math import log

    return log(max(x, 1e-300))


# ---- shapes ----------------------------------------------------------------------------------


def gemm_shape(text: str) -> Shape:
    """`512`, or `512x1024x256` for m, n and k."""
    parts = text.split("x")
    if not all(re.fullmatch(r"[1-9][0-9]{0,6}", part) for part in parts) or len(parts) not in (1, 3):
        raise _native.InvalidValue(f"the shape of a product is N or MxNxK, not '{text}'")
    m, n, k = (int(part) for part in (parts * 3 if len(parts) == 1 else parts))
    return Shape(text, (m, n, k), 2.0 * m * n * k)


_CONV = re.compile(r"(\d+)x(\d+)x(\d+)x(\d+),(\d+)x(\d+)x(\d+)((?:,[spdg]\d+(?:x\d+)?)*)")


def conv_shape(text: str) -> Shape:
    """`8x64x56x56,64x3x3,s1,p1`: n, channels, height and width of the input, filters and their size; then, if wanted,
    stride, padding, dilation and groups. The padding that is not given keeps the size at stride 1."""
    found = _CONV.fullmatch(text)
    if not found:
        raise _native.InvalidValue(f"the shape of a convolution is NxCxHxW,FxKHxKW[,sS][,pP][,dD][,gG], not '{text}'")
    n, c, h, w, f, kh, kw = (int(found.group(i)) for i in range(1, 8))
    more = {"s": (1, 1), "d": (1, 1), "g": (1, 1)}
    for word in filter(None, found.group(8).split(",")):
        one, _, two = word[1:].partition("x")
        more[word[0]] = (int(one), int(two or one))
    d = more["d"]
    p = more.get("p", (d[0] * (kh - 1) // 2, d[1] * (kw - 1) // 2))
    s, g = more["s"], more["g"][0]
    if min(n, c, h, w, f, kh, kw, *s, *d, g) < 1 or c % g or f % g:
        raise _native.InvalidValue(f"the shape '{text}' makes no convolution: sizes are at least 1 and groups divide the channels")
    out = [(size + 2 * p[i] - d[i] * (k - 1) - 1) // s[i] + 1 for i, (size, k) in enumerate(((h, kh), (w, kw)))]
    if min(out) < 1:
        raise _native.InvalidValue(f"the filters of '{text}' are larger than its input")
    return Shape(text, ((n, c, h, w, f, kh, kw), s, p, d, g), 2.0 * n * f * out[0] * out[1] * (c // g) * kh * kw)


def resnet_shapes(n: int = 4) -> list[Shape]:
    return [conv_shape(f"{n}x{c}x{size}x{size},{f}x{k}x{k},s{s},p{k // 2}") for c, size, f, k, s in RESNET_50]


# ---- PyTorch's own -----------------------------------------------------------------------------

_TORCH_PROGRAM = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import torch
dtype, threads, repeats, least, shapes = json.loads(sys.argv[1])
torch.set_num_threads(threads)
dtype = getattr(torch, dtype)
torch.manual_seed(0)
results = []
for shape in shapes:
    if len(shape) == 3:
        m, n, k = shape
        a, b = torch.rand(m, k, dtype=dtype) * 2 - 1, torch.rand(k, n, dtype=dtype) * 2 - 1
        call = lambda: torch.mm(a, b)
        x = torch.rand(n, 1, dtype=torch.float64) * 2 - 1
        def error(c):
            exact = a.double() @ (b.double() @ x)
            size = a.double().abs() @ (b.double().abs() @ x.abs())
            return ((c.double() @ x - exact).abs() / size).max().item()
        terms, operations = k, 2.0 * m * n * k
    else:
        (n, c, h, w, f, kh, kw), s, p, d, g = shape
        a, b = torch.rand(n, c, h, w, dtype=dtype) * 2 - 1, torch.rand(f, c // g, kh, kw, dtype=dtype) * 2 - 1
        call = lambda: torch.conv2d(a, b, None, s, p, d, g)
        def error(y):
            one = a[:1].double(), b.double()
            exact = torch.conv2d(*one, None, s, p, d, g)
            size = torch.conv2d(one[0].abs(), one[1].abs(), None, s, p, d, g) + 1e-300
            return ((y[:1].double() - exact).abs() / size).max().item()
        terms = c // g * kh * kw
    with torch.no_grad():
        result = call()
        if len(shape) != 3:
            operations = 2.0 * result.numel() * terms
        speeds, calls = [], 1
        while len(speeds) < repeats:
            begun = time.perf_counter()
            for _ in range(calls):
                call()
            took = time.perf_counter() - begun
            if took >= least:
                speeds.append(operations * calls / took * 1e-9)
            else:
                calls = int(calls * 1.3 * least / max(took, 1e-9)) + 1
        speeds.sort()
        epsilon = torch.finfo(dtype).eps
        results.append([speeds[-1], speeds[len(speeds) // 2], speeds[0], error(result), epsilon * (2 + terms ** .5)])
print(json.dumps([torch.__version__, results]))
"""


def _torch_rows(shapes: Sequence[Shape], dtype: str, threads: int, repeats: int, seconds: float) -> list[Row]:
    request = json.dumps([dtype, threads, repeats, seconds, [shape.key for shape in shapes]])
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    done = subprocess.run([sys.executable, "-c", _TORCH_PROGRAM, request], capture_output=True, text=True,
                          env=environment, cwd="/")
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
        return [Row("torch", "PyTorch", shape.label, dtype, threads, problem=reason) for shape in shapes]
    version, results = json.loads(done.stdout.splitlines()[-1])
    return [Row("torch", f"PyTorch {version}", shape.label, dtype, threads, best, median, worst, 0.0, error, tolerance)
            for shape, (best, median, worst, error, tolerance) in zip(shapes, results)]


# ---- all of it ---------------------------------------------------------------------------------


def run(operation: str, libraries: Sequence[Library], shapes: Sequence[Shape], dtypes: Sequence[str] = ("float32",),
        threads: Sequence[int] = (1,), repeats: int = 5, seconds: float = 0.05, torch: bool = True,
        progress: Callable[[str], None] = lambda text: None) -> Bench:
    """Measure everything with everything. One library, shape, type and number of threads is one child process."""
    bench = Bench(operation)
    for dtype in dtypes:
        for n in threads:
            progress(f"peak {dtype} x {n}")
            bench.peaks[f"{dtype} x {n}"] = _native.peak_measure(dtype, n, 0.2)
            for library in libraries:
                for shape in shapes:
                    progress(f"{library.name} {shape.label} {dtype} x {n}")
                    bench.rows.append(_measure(library, shape, dtype, n, repeats, seconds))
            if torch:
                progress(f"torch {dtype} x {n}")
                bench.rows += _torch_rows(shapes, dtype, n, repeats, seconds)
            # The machine may have been busy the first time.
            bench.peaks[f"{dtype} x {n}"] = max(bench.peaks[f"{dtype} x {n}"], _native.peak_measure(dtype, n, 0.2))
    for row in bench.rows:
        row.share = row.median / bench.peaks[f"{row.dtype} x {row.threads}"]
    return bench


def _measure(library: Library, shape: Shape, dtype: str, threads: int, repeats: int, seconds: float) -> Row:
    row = Row(library.name, library.described, shape.label, dtype, threads)
    try:
        result = _native.blas_measure(library.path, dtype, shape.key, threads, repeats, seconds)
    except _native.Error as error:
        row.problem = str(error)
        return row
    for key in ("best", "median", "worst", "error", "tolerance"):
        setattr(row, key, result[key])
    return row


def table(bench: Bench) -> str:
    lines = [f"peak: {', '.join(f'{name} {peak:.1f}' for name, peak in bench.peaks.items())} GFLOP/s "
             "(multiply-adds in registers)", ""]
    shape_width = max([len(row.shape) for row in bench.rows] + [5])
    name_width = max([len(row.library) for row in bench.rows] + [7])
    lines.append(f"{'shape':<{shape_width}} {'dtype':<8} {'threads':>7}  {'library':<{name_width}} {'GFLOP/s':>8} "
                 f"{'of peak':>7} {'spread':>7} {'error':>8}")
    order = {row.shape: i for i, row in reversed(list(enumerate(bench.rows)))}
    for row in sorted(bench.rows, key=lambda row: (row.dtype, row.threads, order[row.shape], -row.median)):
        head = f"{row.shape:<{shape_width}} {row.dtype:<8} {row.threads:>7}  {row.library:<{name_width}}"
        if row.problem:
            lines.append(f"{head} failed: {row.problem}")
        else:
            verdict = "ok" if row.correct else f"WRONG (at most {row.tolerance:.0e})"
            lines.append(f"{head} {row.median:>8.1f} {100 * row.share:>6.1f}% {100 * row.spread:>6.1f}% "
                         f"{row.error:>8.0e} {verdict}")
    lines += ["", "over all shapes (geometric mean of GFLOP/s):"]
    lines += [f"  {i}. {name:<{name_width}} {mean:>8.1f}" for i, (name, mean) in enumerate(bench.ranking(), 1)]
    wrong = sorted({row.library for row in bench.rows if not row.correct})
    if wrong:
        lines.append(f"not ranked, because something failed or was wrong: {', '.join(wrong)}")
    return "\n".join(lines)


def write_json(bench: Bench, path: str) -> None:
    with open(path, "w") as file:
        json.dump({"operation": bench.operation, "peaks": bench.peaks, "rows": [asdict(row) for row in bench.rows],
                   "ranking": bench.ranking()}, file, indent=1)


def parse_shapes(operation: str, text: Optional[str]) -> list[Shape]:
    if operation == "gemm":
        return [gemm_shape(word) for word in (text or GEMM_SHAPES).replace(" ", ",").split(",") if word]
    if not text:
        return resnet_shapes()
    return [conv_shape(word) for word in text.split()]


def names_of(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.library for row in rows))
