"""The commands `godwit backend ...` and `godwit profile`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from typing import Optional, Sequence

from .. import _native

PROFILE_USAGE = "godwit profile --lib NAME [--lib NAME ...] [--json FILE] [--html FILE] -- program [argument ...]"


def add(commands: argparse._SubParsersAction) -> None:
    """Put these commands among the others."""
    backend = commands.add_parser("backend", help="BLAS libraries: which are here, how fast, and who calls what")
    what = backend.add_subparsers(dest="backend_command", metavar="what", required=True)

    listing = what.add_parser("list", help="show every BLAS of this machine and of this Python")
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.add_argument("--quick", action="store_true", help="do not ask which of them PyTorch and NumPy use")

    bench = what.add_parser("bench", help="measure products or convolutions with each of them")
    bench.add_argument("operation", choices=("gemm", "conv2d"))
    bench.add_argument("--shapes", help="gemm: '512,1024' or '512x64x128' (m, n, k); conv2d: '8x64x56x56,64x3x3,s1,p1' "
                                        "(n c h w, filters, stride, padding, also d and g), several with blanks between; "
                                        "else 128 to 1024, and ResNet-50's layers")
    bench.add_argument("--lib", action="append", default=[], metavar="NAME", help="only these (a name of `list`, or a path)")
    bench.add_argument("--dtype", default="float32", help="float32, float64, or both with a comma")
    bench.add_argument("--threads", default="", help="1, or 1,2,4; else 1 and all processors")
    bench.add_argument("--repeats", type=int, default=5)
    bench.add_argument("--seconds", type=float, default=0.05, help="the least that a repeat takes")
    bench.add_argument("--no-torch", action="store_true", help="without PyTorch's own")
    bench.add_argument("--plot", metavar="FILE", help="draw it, as .svg")
    bench.add_argument("--json", metavar="FILE")

    trace = what.add_parser("trace", help="show by which calls an operation of PyTorch reaches the code that does the work")
    trace.add_argument("operation", help="conv2d, conv2d-backward, mm, linear, bmm")
    trace.add_argument("--blas", metavar="NAME", help="with products routed through this library")
    trace.add_argument("--seconds", type=float, default=2.0)

    profile = commands.add_parser("profile", help="run a program and show who calls a library's functions, and the time",
                                  usage=PROFILE_USAGE)
    profile.add_argument("--lib", action="append", required=True, metavar="NAME",
                         help="a library: how its file's name begins (libopenblas), or its path")
    profile.add_argument("--json", metavar="FILE")
    profile.add_argument("--html", metavar="FILE", help="a page for a browser")
    profile.add_argument("--rows", type=int, default=40, metavar="N", help="of the table")
    profile.add_argument("--hz", type=int, default=250, help="samples per second of processor time (the kernel's limit is 250 or so)")
    profile.add_argument("--no-time", action="store_true", help="count only")
    profile.add_argument("--keep", metavar="DIRECTORY", help="keep the raw records there")


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """`profile ... -- program` cut where the program begins; without --, at the first word that is no option."""
    words = list(words)
    if "--" in words:
        at = words.index("--")
        return words[:at], words[at + 1:]
    i = 1
    while i < len(words) and words[i].startswith("-"):
        i += 1 if "=" in words[i] or words[i] in ("--no-time", "-h", "--help") else 2
    return words[:i], words[i:]


def main(options: argparse.Namespace, program: Sequence[str]) -> int:
    try:
        if options.command == "profile":
            return _profile(options, program)
        return {"list": _list, "bench": _bench, "trace": _trace}[options.backend_command](options)
    except (_native.Error, FileNotFoundError) as error:
        print(f"godwit {options.command}: {error}", file=sys.stderr)
        return 1


def _list(options: argparse.Namespace) -> int:
    from .libraries import libraries

    problems: list[str] = []
    found = libraries(users=not options.quick, problems=problems)
    if options.json:
        print(json.dumps([asdict(library) for library in found], indent=1))
        return 0
    width = max([len(library.name) for library in found] + [4])
    print(f"{'name':<{width}} {'version':<15} {'ints':>4}  {'threading':<9} {'threads':>7}  {'kernel':<12} used by")
    for library in found:
        used = ", ".join([*library.used_by, *(f"the system's {name}" for name in library.chosen_as)])
        print(f"{library.name:<{width}} {library.version:<15} {library.int_bits:>4}  {library.threading:<9} "
              f"{library.threads or '?':>7}  {library.kernel or '-':<12} {used}".rstrip())
        print(f"{'':<{width}} {library.path}")
        for path in library.also:
            print(f"{'':<{width}}   also {path}")
    for text in problems:
        print(f"note: {text}")
    if not found:
        print("no BLAS was found; `make backends` installs Debian's")
    return 0


def _numbers(text: str) -> list[int]:
    if not text:
        return list(dict.fromkeys((1, len(os.sched_getaffinity(0)))))
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise _native.InvalidValue(f"--threads: '{text}'; whole numbers with commas between are needed")
    return numbers


def _check_file(option: str, name: Optional[str], ending: str) -> None:
    """Before minutes of measuring: whether the result could be written there, and is what its name says."""
    if name is None:
        return
    if not name.endswith(ending):
        raise _native.InvalidValue(f"{option}: '{name}'; what is written is {ending[1:].upper()}, so the name must end in {ending}")
    folder = os.path.dirname(name) or "."
    if not os.access(folder, os.W_OK):
        raise _native.InvalidValue(f"{option}: '{folder}' is no folder that can be written to")


def _bench(options: argparse.Namespace) -> int:
    from . import bench, plot
    from .libraries import find, libraries

    _check_file("--plot", options.plot, ".svg")
    _check_file("--json", options.json, "")
    shapes = bench.parse_shapes(options.operation, options.shapes)
    dtypes = options.dtype.split(",")
    for dtype in dtypes:
        if dtype not in ("float32", "float64"):
            raise _native.InvalidValue(f"--dtype: '{dtype}'; float32 and float64 can be measured")
    threads = _numbers(options.threads)
    chosen = [find(name) for name in options.lib] or libraries()

    def progress(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    result = bench.run(options.operation, chosen, shapes, dtypes, threads, options.repeats, options.seconds,
                       not options.no_torch, progress)
    progress("")
    print(bench.table(result))
    if options.plot:
        with open(options.plot, "w") as file:
            file.write(plot.svg(result))
    if options.json:
        bench.write_json(result, options.json)
    return 0 if all(row.correct for row in result.rows) else 1


def _trace(options: argparse.Namespace) -> int:
    from . import trace

    print(trace.show(options.operation, options.blas, options.seconds))
    return 0


def _profile(options: argparse.Namespace, program: Sequence[str]) -> int:
    from ..command import program_argv
    from . import report
    from .profile import profile

    if not program:
        print(f"godwit profile: which program?  usage: {PROFILE_USAGE}", file=sys.stderr)
        return 2
    result = profile(program_argv(program), options.lib, 0 if options.no_time else options.hz, options.keep)
    print(report.table(result, options.rows), file=sys.stderr)
    if options.json:
        report.write_json(result, options.json)
    if options.html:
        report.write_page(result, options.html)
    return result.exit_code if result.exit_code >= 0 else 128 - result.exit_code
