"""`godwit run` as people use it: programs of each kind, their failures, Ctrl-C, pipes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from processes import job_environment, run

RUN = (sys.executable, "-m", "godwit", "run")

WHO = """\
import os, sys
print(os.environ.get("GODWIT_RANK"), "of", os.environ.get("GODWIT_SIZE"), *sys.argv[1:])
"""


def start(*argv: str | Path, **more) -> subprocess.Popen[str]:
    """Start `godwit run`, able to receive Ctrl-C even if the tests run in the background."""
    return subprocess.Popen([str(word) for word in (*RUN, *argv)], env=job_environment(), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler), **more)


def assert_ranks(done: subprocess.CompletedProcess[str], size: int, *words: str) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert sorted(done.stdout.splitlines()) == [" ".join((f"[{rank}] {rank} of {size}", *words))
                                               for rank in range(size)]


def test_a_python_file_runs_as_ranks(program, leaves_nothing):
    assert_ranks(run(*RUN, "-n", "4", program(WHO), "--lr", "0.1"), 4, "--lr", "0.1")


def test_a_module_runs_as_ranks(program):
    path = program(WHO, "who_am_i.py")
    assert_ranks(run(*RUN, "-n", "4", "-m", "who_am_i", "-n", "9", PYTHONPATH=str(path.parent)), 4, "-n", "9")


def test_an_executable_runs_as_ranks():
    assert_ranks(run(*RUN, "-n", "4", "sh", "-c", "echo $GODWIT_RANK of $GODWIT_SIZE"), 4)


def test_without_n_the_command_becomes_the_program(program):
    path = program("import os; print(os.getpid(), os.environ.get('GODWIT_RANK'))")
    process = start(path)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, f"{process.pid} None\n", "")


def test_the_last_lines_tell_of_the_rank_that_failed(program, leaves_nothing):
    done = run(*RUN, "-n", "4", program("""\
import os, sys, time
if os.environ["GODWIT_RANK"] == "2":
    raise ValueError("these weights are not a number")
time.sleep(1)
sys.exit(3)
"""))
    assert done.returncode == 1
    report = done.stderr[done.stderr.index("godwit run:"):].splitlines()
    assert report[:3] == ["godwit run: rank 2 of 4 failed: exit code 1",
                          "    its last words:",
                          "    | Traceback (most recent call last):"]
    assert report[-2:] == ["    | ValueError: these weights are not a number",
                           "godwit run: afterwards ranks 0, 1 and 3 ended with exit code 3"]


def test_a_rank_that_is_killed_is_told_by_the_signal(program):
    done = run(*RUN, "-n", "2", program("""\
import os, signal
if os.environ["GODWIT_RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
"""))
    assert done.returncode == 128 + signal.SIGKILL
    assert done.stderr.startswith("godwit run: rank 1 of 2 failed: killed by signal 9 (SIGKILL)")


def test_others_are_given_five_seconds_then_stopped(program, leaves_nothing):
    path = program("""\
import os, sys, time
if os.environ["GODWIT_RANK"] == "0":
    sys.exit(7)
time.sleep(1000)
""")
    begin = time.monotonic()
    done = run(*RUN, "-n", "3", path)
    assert 5 <= time.monotonic() - begin < 8
    assert done.returncode == 7
    assert done.stderr.splitlines()[-1] == "godwit run: afterwards ranks 1 and 2 were stopped by godwit run"


def test_ctrl_c_ends_the_job_at_once_with_130(program, leaves_nothing):
    process = start("-n", "4", program("import time; print('ready'); time.sleep(1000)"))
    for _ in range(4):
        assert process.stdout.readline().endswith("ready\n")
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - begin < 2
    assert process.returncode == 130
    assert err.count("KeyboardInterrupt") == 4
    assert err.splitlines()[-1] == "godwit run: stopped by SIGINT"


def test_a_program_may_end_well_on_ctrl_c(program):
    process = start("-n", "2", program("""\
import time
try:
    print("ready")
    time.sleep(1000)
except KeyboardInterrupt:
    print("saved")
"""))
    for _ in range(2):
        assert process.stdout.readline().endswith("ready\n")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert sorted(out.splitlines()) == ["[0] saved", "[1] saved"]


def test_a_reader_that_leaves_ends_the_job(program, leaves_nothing):
    process = start("-n", "2", program("while True: print('more')"))
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 128 + signal.SIGPIPE


def test_output_of_16_ranks_is_aligned_and_whole(program):
    done = run(*RUN, "-n", "16", program("""\
import os
for line in range(1000):
    print(os.environ["GODWIT_RANK"], line, "x" * 50)
"""))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for rank in range(16):
        assert [line for line in lines if line.startswith(f"[{rank:2}] ")] == [
            f"[{rank:2}] {rank} {line} {'x' * 50}" for line in range(1000)]
    assert len(lines) == 16 * 1000


@pytest.mark.parametrize("n", [[], ["-n", "2"]])
def test_a_program_that_is_not_there_is_one_error(n):
    done = run(*RUN, *n, "no-such-program")
    assert done.returncode != 0
    assert done.stdout == ""
    assert "there is no program 'no-such-program'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_job_inside_a_job_is_its_own(program):
    inner = program("import godwit; w = godwit.init(); godwit.barrier(); print(w.rank, w.size)", "inner.py")
    outer = program(f"import subprocess, sys; sys.exit(subprocess.call({[*RUN, '-n', '2', str(inner)]!r}))")
    done = run(*RUN, "-n", "3", outer)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{o}] [{i}] {i} 2" for o in range(3) for i in range(2)]
