"""peers.py - Godwit beside a project that it stands in for, as that project is published.

    tools/peers.py [--python .venv/bin/python]        `make test-peers` does it after tools/setup.sh

1. mpi4torch is taken from PyPI and built in build/peers against Open MPI. It is no dependency of Godwit.
   It is built with Debian's PyTorch 1.13, because 0.1.3, its newest, does not compile with PyTorch 2.13,
   where the nodes of autograd are no longer held by std::shared_ptr.
2. mpi4torch's own tests run on Godwit, with `godwit run --as mpi4torch`, 1, 2, 3, 4 and 7 ranks, and under
   both MPIs' mpirun. PyPI has no version with the tests, so they come from its repository, or from the
   directory that MPI4TORCH_TESTS names; without either they are skipped.
3. tests/jobs/mpi4torch_program.py runs with mpi4torch and with Godwit; every value and gradient must be the
   same to the last bit, but where mpi4torch is known to be wrong.

Logs and results are in build/peers. The last line counts; the exit code is 0 only if nothing failed.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import unittest
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PEERS = BUILD / "peers"
PROGRAM = ROOT / "tests" / "jobs" / "mpi4torch_program.py"

MPI4TORCH = "mpi4torch==0.1.3"
REPOSITORY = "https://github.com/helmholtz-analytics/mpi4torch/archive/"
COMMIT = "60e674cceb58e6dc8633954c64fa2d72c6e996b5"
MODULES = ["test_collectives", "test_joindummies", "test_nonblocking"]  # and test_mpi4pyinterop, under mpirun

DEBIAN_PYTHON = "/usr/bin/python3"
PACKAGES = ["python3-torch", "libtorch-dev", "pybind11-dev", "python3-dev", "python3-pip", "python3-setuptools",
            "python3-wheel", "g++", "openmpi-bin", "libopenmpi-dev"]
MPIRUN = {"openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"], "mpich": ["mpirun.mpich"]}
LIMIT_S = 600  # for one command; 7 ranks that share 2 busy cores take a minute


def known(name: str, n: int) -> str:
    """Why mpi4torch's own result is another one, if that is known; Godwit's is then compared with the formula only."""
    if name.startswith("Allgather") and name.endswith("gradient") and n > 2:
        return "its backward takes the part of rank 1 in the place of those of all further ranks"
    return ""


def ranks(n: int) -> str:
    return "1 rank" if n == 1 else f"{n} ranks"


@dataclass
class Outcome:
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def tell(self, name: str, passed: int, failure: str = "") -> None:
        """One line for one run: so many tests passed, or what went wrong."""
        if failure:
            self.failed.append(f"{name}: {failure}")
        else:
            self.passed += passed
        print(f"  {name:<52} {failure or f'{passed} passed'}", flush=True)


def run(log: str, *argv: str | Path, path: list[Path] = [], cwd: Path = ROOT, **environment: str) -> tuple[int, str]:
    """Run a command; what it says goes to a log too. `path` is its PYTHONPATH."""
    words = [str(word) for word in argv]
    about_jobs = ("GODWIT_", "TORCHELASTIC_", "OMPI_", "PMI", "SLURM_", "PYTHONPATH")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(about_jobs)}
    if path:
        plain["PYTHONPATH"] = os.pathsep.join(map(str, path))
    file = PEERS / "logs" / f"{log}.log"
    with open(file, "w") as out:
        print("$", *words, file=out, flush=True)
        process = subprocess.Popen(words, cwd=cwd, env=plain | environment, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = -1
            print(f"not done within {LIMIT_S} s", file=out)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # a launcher's ranks too, however it ended
            except ProcessLookupError:
                pass
            process.wait()
    return code, file.read_text(errors="replace")


# --- mpi4torch itself -----------------------------------------------------------------------------


def install_packages() -> None:
    lack = [name for name in PACKAGES
            if not subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Abbrev}", name], capture_output=True,
                                  text=True).stdout.startswith(("ii", "hi"))]
    if not lack:
        return
    if os.geteuid() != 0:
        sys.exit(f"peers: Debian packages are missing; as root: apt-get install {' '.join(lack)}")
    print(f"  installing Debian packages: {' '.join(lack)}", flush=True)
    apt = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300"]
    run("apt-update", *apt, "update", DEBIAN_FRONTEND="noninteractive")
    code, said = run("apt", *apt, "install", "--no-install-recommends", *lack, DEBIAN_FRONTEND="noninteractive")
    if code != 0:
        sys.exit(f"{said[-2000:]}\npeers: cannot go on without: {' '.join(lack)}")


def build_mpi4torch() -> Path:
    """The directory with mpi4torch for Debian's Python and Open MPI."""
    where = PEERS / "mpi4torch"
    stamp = where / "made-for"
    made_for = f"{MPI4TORCH} {subprocess.run([DEBIAN_PYTHON, '-VV'], capture_output=True, text=True).stdout}"
    if stamp.exists() and stamp.read_text() == made_for:
        return where
    install_packages()
    shutil.rmtree(where, ignore_errors=True)
    # Its setup.py calls mpicc and mpicxx by these names, whichever MPI has them.
    compilers = PEERS / "bin"
    compilers.mkdir(exist_ok=True)
    for name in ("mpicc", "mpicxx"):
        (compilers / name).unlink(missing_ok=True)
        (compilers / name).symlink_to(shutil.which(f"{name}.openmpi") or "/nonexistent")
    print(f"  building {MPI4TORCH} with Debian's PyTorch and Open MPI", flush=True)
    code, said = run("build-mpi4torch", DEBIAN_PYTHON, "-m", "pip", "install", "--disable-pip-version-check",
                     "--root-user-action=ignore", "--no-cache-dir", "--no-deps", "--no-build-isolation", "--no-binary",
                     "mpi4torch", "--target", where, MPI4TORCH, PATH=f"{compilers}:/usr/bin:/bin")
    if code != 0:
        sys.exit(f"{said[-3000:]}\npeers: {MPI4TORCH} could not be built")
    stamp.write_text(made_for)
    return where


def find_tests() -> Path | None:
    """mpi4torch's own tests: given, fetched before, or fetched now."""
    if given := os.environ.get("MPI4TORCH_TESTS"):
        return Path(given).resolve()
    where = PEERS / "tests"
    if not where.is_dir():
        try:
            with urllib.request.urlopen(f"{REPOSITORY}{COMMIT}.tar.gz", timeout=30) as answer:
                archive = tarfile.open(fileobj=io.BytesIO(answer.read()))
        except (OSError, tarfile.TarError) as error:
            print(f"  mpi4torch's repository cannot be had ({error}); give its tests with MPI4TORCH_TESTS=directory")
            return None
        where.mkdir()
        for member in archive.getmembers():
            if re.fullmatch(r"[^/]+/tests/test_\w+\.py", member.name):
                (where / Path(member.name).name).write_bytes(archive.extractfile(member).read())
    return where


# --- its tests, on Godwit ----------------------------------------------------------------------------


def run_unittest(where: Path, modules: list[str]) -> None:
    """One rank of a run of the tests: what came of them goes to a file, for output of ranks mixes."""
    import mpi4torch

    sys.path.insert(0, os.getcwd())
    result = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromNames(modules))
    bad = [test.id() for test, _ in result.failures + result.errors + result.skipped]
    (where / f"{mpi4torch.COMM_WORLD.rank}.txt").write_text("\n".join([str(result.testsRun), *bad]))
    sys.exit(not result.wasSuccessful())


def ran(log: str, n: int, modules: list[str], tests: Path, *argv: str | Path, path: list[Path] = []) -> tuple[int, str]:
    """How many of the tests passed on every rank, or what went wrong."""
    where = PEERS / "results" / log
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    code, _ = run(log, *argv, __file__, "--unittest", where, *modules, cwd=tests, path=path)
    told = [file.read_text().splitlines() for file in where.iterdir()]
    bad = sorted({name for _, *names in told for name in names})
    counts = {count for count, *_ in told}
    if bad or code != 0 or len(told) != n or len(counts) != 1:
        return 0, f"{', '.join(bad) or f'{len(told)} of {n} ranks came to the end'}; exit code {code}"
    return int(counts.pop()), ""


def own_tests(outcome: Outcome, godwit: list[str]) -> None:
    tests = find_tests()
    if tests is None:
        outcome.skipped.append("mpi4torch's own tests: they are not on PyPI")
        return
    lack = [name for name in [*MODULES, "test_mpi4pyinterop"] if not (tests / f"{name}.py").exists()]
    if lack:
        sys.exit(f"peers: {tests} has no {', '.join(lack)}")
    for n in (1, 2, 3, 4, 7):
        outcome.tell(f"its own tests, {ranks(n)}", *ran(f"own-tests-{n}", n, MODULES, tests, *godwit, "-n", str(n)))
    for mpi, launcher in MPIRUN.items():
        mpi4py = BUILD / f"mpi4py-{mpi}"
        modules = MODULES + ["test_mpi4pyinterop"] * mpi4py.is_dir()
        for n in (2, 4):
            name = f"its own tests, {ranks(n)}, {launcher[0]}"
            if shutil.which(launcher[0]) is None:
                outcome.skipped.append(f"{name}: not installed")
                continue
            outcome.tell(name, *ran(f"own-tests-{n}-{mpi}", n, modules, tests, *launcher, "-n", str(n), *godwit,
                                    path=[mpi4py]))


# --- the same program on both ------------------------------------------------------------------------


def results_of(name: str, n: int, *argv: str | Path, path: list[Path] = []) -> tuple[list[dict], list[str]]:
    """What each rank of the program has saved, nothing if one has not, and what is not as the formulas have it."""
    where = PEERS / "results" / f"{name}-{n}"
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    code, said = run(f"program-{name}-{n}", *argv, PROGRAM, "--save", where, path=path)
    if code != 0 or not all((where / f"{rank}.pt").exists() for rank in range(n)):
        sys.stdout.write(said[-3000:])
        return [], []
    saved = [torch.load(where / f"{rank}.pt") for rank in range(n)]
    return [one["results"] for one in saved], sorted({name for one in saved for name in one["wrong"]})


def compare(theirs: list[dict], ours: list[dict], n: int) -> tuple[int, int, list[str]]:
    """How many results are the same, how many differ as is known, and what else differs."""
    same, expected, differ = 0, 0, []
    for rank in range(n):
        if theirs[rank].keys() != ours[rank].keys():
            differ.append(f"rank {rank} has not the same results")
        for name in theirs[rank].keys() & ours[rank].keys():
            one, other = theirs[rank][name], ours[rank][name]
            if one.dtype == other.dtype and torch.equal(one, other):
                same += 1
            elif known(name, n):
                expected += 1
            else:
                differ.append(f"{name} (rank {rank})")
    return same, expected, differ


def same_program(outcome: Outcome, mpi4torch: Path, python: Path, godwit: list[str]) -> None:
    package = subprocess.run([python, "-c", "import godwit; print(godwit.__path__[0])"], capture_output=True, text=True,
                             cwd="/", check=True).stdout.strip()
    alone = PEERS / "godwit-path"  # Godwit without the rest of its environment, for Debian's Python
    alone.mkdir(exist_ok=True)
    (alone / "godwit").unlink(missing_ok=True)
    (alone / "godwit").symlink_to(package)

    for n in (1, 2, 3, 4, 7):
        theirs, wrong = results_of("mpi4torch", n, *MPIRUN["openmpi"], "-n", str(n), DEBIAN_PYTHON, path=[mpi4torch])
        if not theirs:
            outcome.tell(f"mpi4torch, {ranks(n)}", 0, "mpi4torch itself did not run, see the log")
            continue
        for text in wrong:
            why = known(text, n)
            print(f"  mpi4torch, {ranks(n)}: {text}: not as the formula has it" + (f"; {why}" if why else ""))
        ways = {
            "shm": (godwit + ["-n", str(n)], []),
            "shm, Debian's PyTorch": ([DEBIAN_PYTHON, "-m", "godwit", "run", "--as", "mpi4torch", "-n", str(n)], [alone]),
            "Open MPI": ([*MPIRUN["openmpi"], "-n", str(n), *godwit], []),
            "MPICH": ([*MPIRUN["mpich"], "-n", str(n), *godwit], []),
        }
        for way, (argv, path) in ways.items():
            name = f"as mpi4torch has it, {ranks(n)}, {way}"
            if shutil.which(argv[0]) is None:
                outcome.skipped.append(f"{name}: {argv[0]} is not installed")
                continue
            ours, wrong = results_of(re.sub(r"\W+", "-", way), n, *argv, path=path)
            if not ours or wrong:
                outcome.tell(name, 0, "Godwit's run failed, see the log" if not ours else f"not as the formula: {wrong}")
                continue
            same, expected, differ = compare(theirs, ours, n)
            if expected:
                outcome.skipped.append(f"{name}: {expected} where mpi4torch is known to be wrong")
            outcome.tell(name, same, "differ: " + ", ".join(sorted(differ)[:6]) if differ else "")


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare Godwit with mpi4torch.")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv" / "bin" / "python", help="whose Godwit to compare")
    parser.add_argument("--unittest", nargs="+", help=argparse.SUPPRESS)  # how the tests' ranks are started
    arguments = parser.parse_args()
    if arguments.unittest:
        run_unittest(Path(arguments.unittest[0]), arguments.unittest[1:])
    python = arguments.python.absolute()
    godwit = [str(python.parent / "godwit"), "run", "--as", "mpi4torch"]

    (PEERS / "logs").mkdir(parents=True, exist_ok=True)
    mpi4torch = build_mpi4torch()
    outcome = Outcome()
    own_tests(outcome, godwit)
    same_program(outcome, mpi4torch, python, godwit)
    for title, names in (("skipped", outcome.skipped), ("failed", outcome.failed)):
        if names:
            print(f"\n  {title}:", *(f"    {name}" for name in names), sep="\n")
    print(f"\n{outcome.passed} passed, {len(outcome.failed)} failed"
          + (f", {len(outcome.skipped)} skipped" if outcome.skipped else ""))
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
