"""However a job ends, it says why and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time

import pytest
from processes import BIN, assert_no_more_than, job_environment, run, traces

TALK = """
import sys, time
import godwit
me = godwit.init()
print("pid", me.rank, __import__("os").getpid(), flush=True)
while True:
    godwit.send((me.rank + 1) % me.size, bytes(3_000_000))
    godwit.recv((me.rank - 1) % me.size)
    godwit.barrier()
"""

JOIN = """
import os
import godwit
print("pid", os.environ["GODWIT_RANK"], os.getpid(), flush=True)
godwit.init(size=5, job=os.environ["GODWIT_JOB"])  # one more than will come
"""


def start(program, n: int = 4) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a job and return it with its ranks' process numbers, once all have told theirs."""
    job = subprocess.Popen([BIN / "godwit", "run", "-n", str(n), program], env=job_environment(),
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert job.stdout is not None
    pids = dict(tuple(map(int, job.stdout.readline().split()[-2:])) for _ in range(n))
    return job, [pids[rank] for rank in range(n)]


def wait_until_gone(pids: list[int]) -> None:
    """The processes are no children of ours; their entries go away when they end."""
    limit = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < limit, "a process of the job lives on"
        time.sleep(0.01)


def test_an_exception_in_one_rank_ends_the_job_with_its_last_words(program, leaves_nothing):
    failing = program("import godwit\nme = godwit.init()\ngodwit.barrier()\n"
                      "if me.rank == 2:\n    raise ValueError('two is not amused')\ngodwit.recv(2)\n")
    done = run(BIN / "godwit", "run", "-n", "4", failing)
    assert done.returncode == 1
    tail = done.stderr[-3000:]
    assert "rank 2" in tail and "two is not amused" in tail
    assert "RankLost: rank 2 has left the job" in done.stderr


@pytest.mark.parametrize("victim", range(4))
def test_a_killed_rank_is_named_by_all_others_within_two_seconds(program, victim, leaves_nothing):
    job, pids = start(program(TALK))
    time.sleep(0.2)
    started = time.monotonic()
    os.kill(pids[victim], signal.SIGKILL)
    _, errors = job.communicate(timeout=20)
    assert time.monotonic() - started < 4  # noticing, and Python's way out
    assert job.returncode == 128 + signal.SIGKILL
    for rank in set(range(4)) - {victim}:
        assert f"[{rank}] godwit.RankLost: rank {victim}" in errors
    wait_until_gone(pids)


@pytest.mark.parametrize("text", [TALK, JOIN], ids=["while talking", "while joining"])
def test_killing_everybody_leaves_nothing(program, text):
    before = traces()
    job, pids = start(program(text))
    time.sleep(0.3)
    for pid in [job.pid, *pids]:
        os.kill(pid, signal.SIGKILL)
    job.communicate(timeout=20)
    wait_until_gone(pids)
    assert_no_more_than(before)


EARLY = """
import os, sys, time
print("pid", os.environ["GODWIT_RANK"], os.getpid(), flush=True)
if os.environ["GODWIT_RANK"] == "1":
    {end}
import godwit
try:
    godwit.init()
except godwit.RankLost as lost:
    print(f"lost {{time.monotonic():.3f}} {{lost}}", file=sys.stderr, flush=True)
    sys.exit(3)
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "sys.exit(5)", "sys.exit(0)"])
def test_a_rank_that_ends_before_it_joins_is_named_to_those_who_wait_for_it(program, end, leaves_nothing):
    started = time.monotonic()
    done = run(BIN / "godwit", "run", "-n", "4", program(EARLY.format(end=end)))
    assert time.monotonic() - started < 4
    assert done.returncode in (128 + signal.SIGKILL, 5, 3)
    for rank in (0, 2, 3):
        assert re.search(rf"^\[{rank}\] lost [\d.]+ rank 1 \(process \d+\) ended before it joined the job$", done.stderr, re.M), \
            done.stderr


def test_killing_the_launcher_takes_the_ranks_along(program, leaves_nothing):
    job, pids = start(program(TALK))
    job.kill()
    job.communicate(timeout=20)
    wait_until_gone(pids)


@pytest.mark.parametrize("text", [TALK, JOIN], ids=["while talking", "while joining"])
def test_ctrl_c_ends_the_job_within_a_second(program, text, leaves_nothing):
    job, pids = start(program(text))
    time.sleep(0.3)
    started = time.monotonic()
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=20)
    assert time.monotonic() - started < 2  # a second, and four interpreters on two cores
    assert job.returncode == 130
    wait_until_gone(pids)


def test_a_normal_end_is_quiet(program, leaves_nothing):
    done = run(BIN / "godwit", "run", "-n", "4", program("import godwit\ngodwit.init()\n"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
