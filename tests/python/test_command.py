"""The command: `godwit run` in its three forms, and `godwit check`."""

import os
import subprocess
import sys

import pytest

import godwit
from godwit import command

LIMIT_SECONDS = 120
WORLD = "import godwit, sys; w = godwit.init(); print(w.rank, w.size, w.nodes, *sys.argv[1:])"


def run(*arguments, expect=0, **more):
    done = subprocess.run([sys.executable, "-m", "godwit", *map(str, arguments)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_SECONDS, **more)
    assert done.returncode == expect, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(WORLD)
    return path


def test_the_version_is_that_of_the_library():
    assert run("--version").stdout == f"godwit {godwit.__version__}\n"


@pytest.mark.parametrize("words, ours, program", [
    (["run", "-n", "2", "a.py", "-n", "3"], ["run", "-n", "2"], ["a.py", "-n", "3"]),
    (["run", "-n2", "--node-size", "1", "ls"], ["run", "-n2", "--node-size", "1"], ["ls"]),
    (["run", "--node-size=1", "ls", "--", "x"], ["run", "--node-size=1"], ["ls", "--", "x"]),
    (["run", "-n", "2", "-m", "mod", "-m"], ["run", "-n", "2"], ["-m", "mod", "-m"]),
    (["run", "--", "-odd-name"], ["run"], ["-odd-name"]),
    (["run"], ["run"], []),
])
def test_the_programs_own_options_stay_the_programs(words, ours, program):
    assert command._split(words) == (ours, program)


def test_a_python_file_runs_as_so_many_ranks(script):
    lines = run("run", "-n", 3, script, "--flag", "x").stdout.splitlines()
    assert sorted(line.split("] ", 1)[1] for line in lines) == [f"{rank} 3 1 --flag x" for rank in range(3)]


def test_node_size_cuts_the_machine(script):
    lines = run("run", "-n", 3, "--node-size", 2, script).stdout.splitlines()
    assert sorted(line.split("] ", 1)[1] for line in lines) == [f"{rank} 3 2" for rank in range(3)]


def test_a_module_runs_as_python_has_it(script):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(script.parent), os.environ.get("PYTHONPATH", "")])}
    lines = run("run", "-n", 2, "-m", "script", "-m", env=env).stdout.splitlines()
    assert sorted(line.split("] ", 1)[1] for line in lines) == ["0 2 1 -m", "1 2 1 -m"]


def test_any_executable_runs():
    lines = run("run", "-n", 2, "sh", "-c", "echo $GODWIT_RANK of $GODWIT_SIZE").stdout.splitlines()
    assert sorted(line.split("] ", 1)[1] for line in lines) == ["0 of 2", "1 of 2"]


def test_the_exit_code_is_that_of_the_rank_that_failed():
    run("run", "-n", 2, "sh", "-c", "exit $((GODWIT_RANK * 7))", expect=7)


def test_without_n_the_command_becomes_the_program(tmp_path):
    path = tmp_path / "who.py"
    path.write_text("import os, sys; print(os.getpid(), os.environ.get('GODWIT_RANK'), sys.argv[1:])")
    process = subprocess.Popen([sys.executable, "-m", "godwit", "run", str(path), "-n", "9"],
                               stdout=subprocess.PIPE, text=True)
    out, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert out == f"{process.pid} None ['-n', '9']\n"
    assert process.returncode == 0


@pytest.mark.parametrize("n", [[], ["-n", "2"]])
def test_a_program_that_is_not_there_is_named(n):
    done = subprocess.run([sys.executable, "-m", "godwit", "run", *n, "no-such-program"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_SECONDS)
    assert done.returncode != 0
    assert "no-such-program" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["run"], ["run", "-n", "2"], ["run", "-n", "0", "ls"], ["run", "-n", "x", "ls"],
                                   ["run", "-m"], [], ["walk"]])
def test_a_command_that_makes_no_sense_shows_how_it_is_used(words):
    done = run(*words, expect=2)
    assert "usage" in done.stderr and "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def check():
    return run("check").stdout


@pytest.mark.parametrize("word", ["godwit", "python", "torch", "numpy", "NUMA nodes", "/dev/shm", "memfd", "open files",
                                  "GODWIT_TIMEOUT", "fabric", "because", "mpirun.openmpi", "job of 2"])
def test_check_tells_what_is_here(check, word):
    assert any(word in line for line in check.splitlines())


def test_check_ends_with_a_job_that_ran(check):
    assert "met, talked and ended" in check
    assert check.splitlines()[-1] == "A job would run here."


def test_check_is_aligned(check):
    marked = [line for line in check.splitlines() if line.startswith("  ")]
    assert all(line[11:].strip() and line[10] == " " for line in marked)


def test_check_fails_where_a_job_would(monkeypatch):
    env = {**os.environ, "GODWIT_TIMEOUT": "soon"}
    done = run("check", expect=1, env=env)
    assert "PROBLEM" in done.stdout and "GODWIT_TIMEOUT" in done.stdout
    assert "would not run" in done.stdout.splitlines()[-1]


def test_check_needs_neither_torch_nor_numpy(tmp_path):
    for name in ("torch", "numpy"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module', name='{name}')")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    out = run("check", env=env).stdout
    assert out.count("not installed (not needed)") == 2


def test_check_into_a_closed_pipe_ends_quietly():
    done = subprocess.run(f"'{sys.executable}' -m godwit check | head -n 1", shell=True, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_SECONDS)
    assert done.stdout.startswith("Godwit") and done.stderr == ""
