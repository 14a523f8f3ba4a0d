#!/usr/bin/env python3
"""report.py - runs the benchmarks, all or those named, and puts what they print into docs/benchmarks.md.

    tools/report.py [NAME ...] [--keep]          --keep: run nothing; take what earlier runs have printed

A benchmark is bench/NAME/run.py; what it prints is kept in build/report/NAME.txt.  In the page it stands between two marks,
and the text around them is ours:

    <!-- make report: NAME -->
    <!-- end -->

A picture that it says it drew goes to docs/bench-NAME.svg and is shown below.  The block `machine` says where all that was
measured.  A benchmark that the page has no marks for gets a chapter at its end.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "shared"))
from machine import kernel, processor  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks.md"
KEPT = ROOT / "build" / "report"


def first_line(*command: str) -> str:
    """What a program says first about itself; nothing if it is not here."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return next((line.strip() for line in done.stdout.splitlines() if line.strip()), "")


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = re.search(r'PRETTY_NAME="(.*)"', Path("/etc/os-release").read_text())
    lines = [f"{processor()}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB",
             f"{system[1] if system else platform.system()}, Linux {kernel()}, {platform.libc_ver()[1] or '?'} C library",
             f"Python {platform.python_version()}, PyTorch {metadata.version('torch')}, NumPy {metadata.version('numpy')}",
             *filter(None, (first_line("mpirun.openmpi", "--version"), first_line("gcc", "--version"))),
             time.strftime("%Y-%m-%d")]
    if version := re.search(r"Version:\s*(\S+)", subprocess.run(["mpirun.mpich", "--version"], capture_output=True, text=True).stdout
                            if first_line("which", "mpirun.mpich") else ""):
        lines.insert(-1, f"MPICH {version[1]}")
    return "\n".join(lines)


def run(name: str) -> str:
    """Run a benchmark, showing what it prints, and keep that."""
    said = []
    with subprocess.Popen([ROOT / "tools/bench.sh", name], stdout=subprocess.PIPE, text=True) as bench:
        for line in bench.stdout:
            print(line, end="", flush=True)
            said.append(line)
    if bench.returncode != 0:
        raise SystemExit(f"bench/{name} ended with {bench.returncode}; the page is as it was for it")
    text = re.sub(r"\A\s*=== .*\n", "", "".join(said)).replace(f"{ROOT}/", "")
    if drawn := re.search(r"^picture: (.*\.svg)\n+", text, re.M):
        shutil.copyfile(ROOT / drawn[1], picture_of(name))
        text = text.replace(drawn[0], "")
    text = text.strip("\n")
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{name}.txt").write_text(text + "\n")
    return text


def picture_of(name: str) -> Path:
    return PAGE.parent / f"bench-{name}.svg"


def put(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- make report: {name} -->", "<!-- end -->"
    if begin not in page:
        page = f"{page.rstrip()}\n\n## `bench/{name}`\n\n{begin}\n{end}\n"
    before, _, rest = page.partition(begin)
    if end not in rest:
        raise SystemExit(f"{PAGE.name}: {begin} has no {end}")
    picture = f"\n![what bench/{name} measured]({picture_of(name).name})\n" if picture_of(name).exists() else ""
    return f"{before}{begin}\n```\n{text}\n```\n{picture}{end}{rest.partition(end)[2]}"


def main() -> None:
    known = sorted(path.parent.name for path in (ROOT / "bench").glob("*/run.py"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--keep", action="store_true", help="run nothing; take what earlier runs have printed")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(known)):
        parser.error(f"there is no bench/{', bench/'.join(unknown)}")
    for name in arguments.names or known:
        kept = KEPT / f"{name}.txt"
        if arguments.keep and not kept.exists():
            continue
        text = kept.read_text().strip("\n") if arguments.keep else run(name)
        PAGE.write_text(put(PAGE.read_text(), name, text))
    PAGE.write_text(put(PAGE.read_text(), "machine", machine()))
    print(f"\nthe page: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
