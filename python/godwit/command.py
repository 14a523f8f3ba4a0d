"""The command `godwit`: run programs as jobs, and check the machine."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import Optional, Sequence

from . import __version__, _native, dropin
from .backend import command as backend

RUN_USAGE = "godwit run [-n N] [--node-size K] [--as NAME,...] [--blas NAME] program [argument ...]"
RUN_HELP = """\
The program is a Python file (*.py), a directory with a __main__.py, `-m module`
as python has it, or any executable.  Its arguments are passed on as they are.  Without -n it starts no
ranks: the command becomes the program.
"""


def _whole_number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


_whole_number.__name__ = "whole number"  # argparse names it in its messages


def _seconds(text: str) -> float:
    number = float(text)
    if not 0.05 <= number <= 3600:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds from 0.05 to 3600")
    return number


def _lookalikes(text: str) -> list[str]:
    chosen = [name.strip() for name in text.split(",")]
    for name in chosen:
        if name not in dropin.names():
            raise argparse.ArgumentTypeError(f"there is no look-alike '{name}'; there are: {', '.join(dropin.names())}")
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="godwit", description="A distributed-memory runtime for PyTorch.")
    parser.add_argument("--version", action="version", version=f"godwit {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)

    run = commands.add_parser(
        "run", help="run a program as a job of several processes", usage=RUN_USAGE,
        description=RUN_HELP, formatter_class=argparse.RawDescriptionHelpFormatter)
    run.add_argument("-n", type=_whole_number, metavar="N", help="how many processes")
    run.add_argument("--node-size", type=_whole_number, metavar="K",
                     help="cut the machine into virtual nodes of K processes")
    run.add_argument("--as", type=_lookalikes, action="extend", default=[], dest="lookalikes", metavar="NAME,...",
                     help="let the program import these projects' modules from Godwit, installed or not: "
                          + ", ".join(dropin.names()))

    run.add_argument("--blas", metavar="NAME",
                     help="route PyTorch's and NumPy's products through this BLAS (`godwit backend list`, or a path)")

    backend.add(commands)
    commands.add_parser("check", help="say whether jobs can run here, and how")
    checkpoint = commands.add_parser("checkpoint", help="look at saved parameters")
    looks = checkpoint.add_subparsers(dest="look", metavar="show", required=True)
    show = looks.add_parser("show", help="print what is inside a checkpoint, and whether it is whole")
    show.add_argument("directory", metavar="DIR", help="what was given to save()")
    show.add_argument("--no-check", action="store_true", help="do not read the parts to compare their checksums")

    commands.add_parser("ps", help="show the jobs that run on this machine and what their ranks are doing")

    top = commands.add_parser("top", help="show where the keys of running jobs are, live")
    top.add_argument("job", nargs="?", default="", help="only jobs whose name contains this")
    top.add_argument("--once", action="store_true",
                     help="print one table, of half a second, and end; so does an output that is no terminal")
    top.add_argument("--interval", type=_seconds, default=1.0, metavar="SECONDS", help="between two looks (1)")

    report = commands.add_parser("report", help="make a page with charts from a trace (GODWIT_TRACE=file)")
    report.add_argument("trace", nargs="+", help="a trace; of a job on several machines, those of all (FILE.rank-N "
                                                 "beside FILE are found)")
    report.add_argument("-o", "--output", metavar="FILE", help="the page; else TRACE.html")
    return parser


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Cut `run ...` where the program begins: at the first word that is not an
    option of ours, at -m, or after --.  argparse would take the program's own
    options, and -m, for its own."""
    i = 1
    while i < len(arguments):
        word = arguments[i]
        if word == "--":
            return list(arguments[:i]), list(arguments[i + 1:])
        if word == "-m" or not word.startswith("-"):
            break
        i += 2 if word in ("-n", "--node-size", "--as", "--blas") else 1
    return list(arguments[:i]), list(arguments[i:])


def program_argv(program: Sequence[str]) -> list[str]:
    """What to execute: Python files and modules by this same Python."""
    if program[0] == "-m" or program[0].endswith(".py") or os.path.isfile(os.path.join(program[0], "__main__.py")):
        return [sys.executable, *program]
    return list(program)


def _become(argv: Sequence[str], node_size: Optional[int]) -> int:
    if node_size is not None:
        os.environ["GODWIT_NODE_SIZE"] = str(node_size)
    path = shutil.which(argv[0])
    if path is None:
        print(f"godwit run: there is no program '{argv[0]}'", file=sys.stderr)
        return 127
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(path, list(argv))
    except OSError as error:
        print(f"godwit run: cannot run '{argv[0]}': {error.strerror}", file=sys.stderr)
        return 126


def _routed(blas: str, program: Sequence[str]) -> list[str]:
    """The program, with its products through another BLAS: only a Python program has any that can be routed."""
    if program[0] != "-m" and not program[0].endswith(".py"):
        raise _native.InvalidValue(f"--blas routes Python programs; '{program[0]}' is none (*.py, or -m module)")
    from .backend import find

    return [sys.executable, "-m", "godwit.backend.routed", find(blas).path, *program]


def _run(n: Optional[int], node_size: Optional[int], program: Sequence[str], blas: Optional[str] = None) -> int:
    try:
        argv = _routed(blas, program) if blas else program_argv(program)
    except (_native.Error, FileNotFoundError) as error:
        print(f"godwit run: {error}", file=sys.stderr)
        return 1
    if n is None:
        return _become(argv, node_size)
    try:
        return _native.launch(argv, n, node_size or 0)
    except _native.Error as error:
        print(f"godwit run: {error}", file=sys.stderr)
        return 1


def _check() -> int:
    from . import check

    try:
        return check.main()
    except BrokenPipeError:  # `godwit check | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _ps() -> int:
    jobs = _native.jobs()
    for title, table in jobs:
        print(f"{title}\n{table}\n")
    if not jobs:
        print("no job of yours runs on this machine")
    return 0


def main(arguments: Optional[Sequence[str]] = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    program: list[str] = []
    if words[:1] == ["run"]:
        words, program = _split(words)
    elif words[:1] == ["profile"]:
        words, program = backend.split(words)

    parser = _parser()
    options = parser.parse_args(words)
    if options.command in ("backend", "profile"):
        return backend.main(options, program)
    if options.command == "check":
        return _check()
    if options.command == "ps":
        return _ps()
    if options.command == "checkpoint":
        from . import checkpoint

        return checkpoint.show(options.directory, not options.no_check)
    if options.command == "top":
        from .inside import top

        return top.main(options.job, options.once, options.interval)
    if options.command == "report":
        from .inside import report

        return report.main(options.trace, options.output)
    if not program or program == ["-m"]:
        parser.error(f"run: which program?  usage: {RUN_USAGE}")
    if options.lookalikes:
        os.environ["PYTHONPATH"] = dropin.python_path(options.lookalikes, os.environ.get("PYTHONPATH", ""))
    return _run(options.n, options.node_size, program, options.blas)
