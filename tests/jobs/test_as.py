"""`godwit run --as`: the program finds the look-alike under the other project's name, and so do its children."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import BIN, job_environment, run
from test_mpi import mpi, mpirun  # noqa: F401  a fixture, and what it is for

import godwit.dropin

AS = Path(godwit.dropin.__file__).parent / "as"
SHIM = str(AS / "mpi4torch" / "mpi4torch.py")
RUN = (BIN / "godwit", "run")

# Where the name leads, without importing it: that would take PyTorch's time.
WHERE = """\
import importlib.util, sys
spec = importlib.util.find_spec("mpi4torch")
sys.stdout.write(f"{spec and spec.origin}\\n")
"""


@pytest.fixture
def where(program):
    return program(WHERE)


@pytest.fixture
def installed(tmp_path):
    """A directory with another mpi4torch in it, as PYTHONPATH or pip would have it."""
    directory = tmp_path / "installed"
    (directory / "mpi4torch").mkdir(parents=True)
    (directory / "mpi4torch" / "__init__.py").write_text("raise AssertionError('not this one')\n")
    return directory


def assert_found(done: subprocess.CompletedProcess[str], n: int = 1, prefix: bool = False) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.partition("] ")[2] if prefix else line for line in done.stdout.splitlines()]
    assert lines == [SHIM] * n


def test_without_as_there_is_no_look_alike(where):
    assert run(*RUN, where).stdout == "None\n"


def test_a_python_file_finds_it(where):
    assert_found(run(*RUN, "--as", "mpi4torch", where))
    assert_found(run(*RUN, "--as=mpi4torch", "-n", "2", where), 2, prefix=True)


def test_a_module_finds_it(where):
    environment = {"PYTHONPATH": os.pathsep.join([str(where.parent), os.environ.get("PYTHONPATH", "")])}
    assert_found(run(*RUN, "--as", "mpi4torch", "-m", where.stem, **environment))
    assert_found(run(*RUN, "-n", "2", "--as", "mpi4torch", "-m", where.stem, **environment), 2, prefix=True)


def test_it_comes_before_an_installed_one_and_what_else_was_on_the_path_stays(program, installed):
    (installed / "other.py").write_text("")
    both = program(WHERE + "import other\n")
    for n in ([], ["-n", "1"]):
        done = run(*RUN, *n, "--as", "mpi4torch", both, PYTHONPATH=os.pathsep.join(
            [str(installed), os.environ.get("PYTHONPATH", "")]))
        assert_found(done, prefix=bool(n))


def test_an_executable_has_it_in_its_environment():
    path = os.environ.get("PYTHONPATH", "")
    expected = os.pathsep.join([str(AS / "mpi4torch")] + [path] * bool(path))
    done = run(*RUN, "--as", "mpi4torch", "sh", "-c", "echo $PYTHONPATH")
    assert done.stdout == f"{expected}\n"


CHILDREN = """\
import multiprocessing, subprocess, sys
def where():
    import importlib.util
    sys.stdout.write(f"{importlib.util.find_spec('mpi4torch').origin}\\n")
    sys.stdout.flush()
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        child = multiprocessing.get_context(method).Process(target=where)
        child.start()
        child.join()
    subprocess.run([sys.executable, "-c", "import importlib.util; print(importlib.util.find_spec('mpi4torch').origin)"])
"""


def test_processes_that_the_program_starts_find_it(program):
    assert_found(run(*RUN, "--as", "mpi4torch", program(CHILDREN)), 3)


def test_a_job_inside_a_job_adds_its_own(program, where):
    inner = program("import os, sys\n"
                    f"os.execv(sys.executable, [sys.executable, '-m', 'godwit', 'run', '--as', 'mpi4torch', {str(where)!r}])\n",
                    "inner.py")
    assert_found(run(*RUN, "--as", "mpi4torch", inner))


def test_both_mpiruns_start_programs_that_find_it(mpi, where):  # noqa: F811
    assert_found(mpirun(mpi, 2, *RUN, "--as", "mpi4torch", where), 2)


@pytest.mark.parametrize("names", ["mpi5torch", "mpi4torch,mpi5torch", "mpi5torch,mpi4torch", "", "../dropin", "."])
def test_an_unknown_name_is_refused_with_those_there_are(where, names):
    for n in ([], ["-n", "2"]):
        done = run(*RUN, *n, "--as", names, where)
        assert (done.returncode, done.stdout) == (2, "")
        unknown = next(name for name in names.split(",") if name != "mpi4torch")
        assert f"there is no look-alike '{unknown}'; there are: {', '.join(godwit.dropin.names())}" in done.stderr
        assert "Traceback" not in done.stderr


def test_names_may_be_listed_and_repeated(where):
    assert_found(run(*RUN, "--as", "mpi4torch, mpi4torch", "--as", "mpi4torch", where))


def test_the_help_names_them():
    text = run(*RUN, "--help").stdout
    assert "--as NAME,..." in text
    assert all(name in text for name in godwit.dropin.names())


def test_as_without_a_program_shows_how_it_is_used():
    done = run(*RUN, "--as", "mpi4torch")
    assert done.returncode == 2
    assert "which program?" in done.stderr


@pytest.mark.parametrize("name", ["adapm", "lapse"])
def test_the_others_are_found_under_their_names_also_by_children(program, name):
    same = program(f"""
import multiprocessing
import {name}, godwit.dropin.{name}, sys
assert {name} is godwit.dropin.{name} is sys.modules["{name}"]
from {name} import Server, Worker, scheduler, setup

def child(given):
    assert sys.modules["{name}"] is godwit.dropin.{name} and given is Worker

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=child, args=(Worker,))
        process.start()
        process.join()
        assert process.exitcode == 0
""")
    done = run(*RUN, "--as", "adapm,lapse", same)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_is_imported_is_the_look_alike_itself(program, installed):
    same = program("import mpi4torch, godwit.dropin.mpi4torch, sys\n"
                   "assert mpi4torch is godwit.dropin.mpi4torch is sys.modules['mpi4torch']\n"
                   "from mpi4torch import COMM_WORLD\n"
                   "import pickle\n"
                   "assert pickle.loads(pickle.dumps(COMM_WORLD)) is COMM_WORLD\n")
    done = subprocess.run([*map(str, RUN), "--as", "mpi4torch", str(same)], capture_output=True, text=True, timeout=60,
                          env=job_environment() | {"PYTHONPATH": os.pathsep.join(
                              [str(installed), os.environ.get("PYTHONPATH", "")])})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
