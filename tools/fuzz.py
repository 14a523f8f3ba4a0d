"""fuzz.py - builds the fuzz targets of tests/fuzz and runs them, one after the other.

    tools/fuzz.py [--seconds 600] [--junit FILE] [target ...]        without targets: all of them

The time is shared out evenly. Each target starts from the inputs that it makes itself, and from those
that crashed it before, so that a crash is found again until it is mended. What crashes a target is kept in
build/fuzz/crashes/, and the command that replays it is printed. The exit code is 0 only if nothing crashed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "fuzz"
CRASHES = BUILD / "crashes"
OPTIONS = ["--werror", "-Dfuzz=true", "-Dpython=disabled", "-Dmpi=disabled", "-Dbuildtype=debugoptimized",
           "-Db_ndebug=false", "-Db_sanitize=address,undefined", "-Db_lundef=false"]  # clang's sanitizers are in programs only
INPUT_LIMIT_S = 10  # for a single input; they take microseconds
MEMORY_LIMIT_MB = 2048


@dataclass
class Result:
    target: str
    executions: int = 0
    per_second: int = 0
    features: int = 0  # distinct places and values that libFuzzer has seen
    failure: str = ""  # what went wrong, in one line
    replays: tuple[str, ...] = ()


def build() -> None:
    environment = os.environ | {"CC": "clang"}
    known = (BUILD / "meson-private" / "coredata.dat").exists()
    configure = ["meson", "setup", *(["--reconfigure"] if known else []), str(BUILD), *OPTIONS]
    for command in (configure, ["meson", "compile", "-C", str(BUILD)]):
        made = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if made.returncode != 0:
            sys.exit(f"{made.stdout}\nfuzz: the targets could not be built with clang; `rm -r {relative(BUILD)}` "
                     "if the compiler changed")


def relative(path: Path) -> Path:
    return path.relative_to(ROOT)


def program(target: str) -> Path:
    return BUILD / "tests" / "fuzz" / f"fuzz-{target}"


def all_targets() -> list[str]:
    return sorted(path.stem.removeprefix("fuzz_") for path in (ROOT / "tests" / "fuzz").glob("fuzz_*.c"))


def fuzz(target: str, seconds: int) -> Result:
    corpus, crashes = BUILD / "corpus" / target, CRASHES / target
    shutil.rmtree(corpus, ignore_errors=True)
    corpus.mkdir(parents=True)
    crashes.mkdir(parents=True, exist_ok=True)
    subprocess.run([program(target)], env=os.environ | {"FUZZ_SEEDS": str(corpus)}, check=True)

    log = BUILD / f"{target}.log"
    with open(log, "w") as output:
        code = subprocess.run(
            [program(target), f"-max_total_time={seconds}", "-use_value_profile=1", "-print_final_stats=1",
             f"-timeout={INPUT_LIMIT_S}", f"-rss_limit_mb={MEMORY_LIMIT_MB}", f"-artifact_prefix={crashes}/",
             corpus, crashes],
            cwd=BUILD, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT).returncode
    return read_log(target, log.read_text(errors="replace"), code)


def read_log(target: str, text: str, code: int) -> Result:
    def last(pattern: str) -> int:
        found = re.findall(pattern, text)
        return int(found[-1]) if found else 0

    result = Result(target, last(r"number_of_executed_units: (\d+)"), last(r"average_exec_per_sec: +(\d+)"),
                    last(r" ft: (\d+) "))
    if code != 0:
        said = re.search(r"^.*(?:this must hold|runtime error|Assertion|ERROR: ).*$", text, re.MULTILINE)
        result.failure = said[0].strip() if said else f"ended with code {code}"
        result.replays = tuple(f"{relative(program(target))} {relative(path)}"
                               for path in sorted((CRASHES / target).iterdir()))
    elif result.executions == 0:
        result.failure = "nothing was executed"
    return result


def show(results: list[Result]) -> None:
    print(f"\n  {'target':<12}{'executions':>12}{'exec/s':>10}{'features':>10}{'crashes':>9}")
    for r in results:
        print(f"  {r.target:<12}{r.executions:>12}{r.per_second:>10}{r.features:>10}{int(bool(r.failure)):>9}")
    print(f"  {'all':<12}{sum(r.executions for r in results):>12}{'':>10}{sum(r.features for r in results):>10}"
          f"{sum(bool(r.failure) for r in results):>9}")
    for r in results:
        if r.failure:
            print(f"\n  {r.target}: {r.failure}\n    the log: {relative(BUILD / r.target)}.log")
            print(*(f"    replay:  {command}" for command in r.replays), sep="\n")
    print()


def write_junit(results: list[Result], path: Path) -> None:
    suite = ElementTree.Element("testsuite", name="fuzz")
    for r in results:
        case = ElementTree.SubElement(suite, "testcase", name=r.target)
        if r.failure:
            ElementTree.SubElement(case, "failure", message=r.failure)
    ElementTree.ElementTree(suite).write(path)


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz every decoder.")
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(all_targets()))
    parser.add_argument("--seconds", type=float, default=600, help="for all targets together (default 600)")
    parser.add_argument("--junit", type=Path, help="write the outcome to this file, too")
    arguments = parser.parse_args()
    targets = arguments.targets or all_targets()
    if unknown := set(targets) - set(all_targets()):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")

    os.environ["PATH"] = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"  # meson and ninja
    build()
    results = []
    seconds = max(1, round(arguments.seconds / len(targets)))
    for number, target in enumerate(targets, 1):
        print(f"[{number}/{len(targets)}] {target:<12}{seconds} s ", end="", flush=True)
        results.append(fuzz(target, seconds))
        print(results[-1].failure or "clean", flush=True)
    show(results)
    if arguments.junit:
        write_junit(results, arguments.junit)
    return 1 if any(r.failure for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
