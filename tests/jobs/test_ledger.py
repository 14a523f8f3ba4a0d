"""What the ranks are doing can be seen: by a rank that waited too long, and from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time

import pytest
from processes import BIN, job_environment, run

# Rank 2 says something and then sleeps where the others meet.
SLEEPY = """
import time
import godwit


def work(me):
    if me.rank == 2:
        godwit.send(0, b"soon")
        time.sleep({sleep})  # here
    godwit.barrier()


me = godwit.init()
godwit.barrier()
print("pid", me.rank, flush=True)
work(me)
"""
LINE = SLEEPY.splitlines().index("        time.sleep({sleep})  # here") + 1
BARRIER_LINE = SLEEPY.splitlines().index("    godwit.barrier()") + 1


def rows(table: str) -> dict[int, str]:
    """The lines of a table by rank."""
    return {int(found[1]): found[0] for found in re.finditer(r"^(?:\[\d+\] )? +(\d+) +\d+  .*$", table, re.M)}


def test_a_wait_that_is_too_long_names_the_missing_rank_its_last_call_and_its_line(program):
    started = time.monotonic()
    done = run(BIN / "godwit", "run", "-n", "4", program(SLEEPY.format(sleep=8)), GODWIT_TIMEOUT="1.5")
    assert time.monotonic() - started < 20
    assert done.returncode == 1
    for rank in (0, 1, 3):
        errors = "\n".join(line for line in done.stderr.splitlines() if line.startswith(f"[{rank}]"))
        assert f"godwit.TimedOut: rank 2 did not come within 1.5 s to a barrier, where rank {rank} waits" in errors
        table = rows(errors)
        assert set(table) == {0, 1, 2, 3}
        assert "after send to rank 0" in table[2] and f"program.py:{LINE} in work" in table[2]
        assert "in barrier" in table[rank] and f"program.py:{BARRIER_LINE} in work" in table[rank]


@pytest.fixture
def sleepy_job(program):
    job = subprocess.Popen([BIN / "godwit", "run", "-n", "4", program(SLEEPY.format(sleep=60))], env=job_environment(),
                           stdout=subprocess.PIPE, text=True)
    for _ in range(4):
        job.stdout.readline()
    yield job
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=20)


def test_godwit_ps_shows_a_running_job(sleepy_job):
    def barriers_in(text):
        return text.count("in barrier")

    limit = time.monotonic() + 10
    while barriers_in(seen := run(BIN / "godwit", "ps").stdout) < 3:
        assert time.monotonic() < limit, seen
    assert "4 ranks here" in seen
    table = rows(seen)
    assert f"program.py:{LINE} in work" in table[2]
    assert f"program.py:{BARRIER_LINE} in work" in table[3]


def test_godwit_ps_does_not_disturb_the_job(program):
    busy = program("import godwit\nme = godwit.init()\n"
                   "for i in range(3000):\n    godwit.send(1 - me.rank, bytes(i))\n    assert godwit.recv(1 - me.rank) == bytes(i)\n"
                   "godwit.barrier()\nprint('well')\n")
    job = subprocess.Popen([BIN / "godwit", "run", "-n", "2", busy], env=job_environment(), stdout=subprocess.PIPE, text=True)
    while job.poll() is None:
        assert run(BIN / "godwit", "ps").returncode == 0
    assert job.communicate()[0].count("well") == 2
    assert job.returncode == 0


def test_without_jobs_godwit_ps_says_so():
    alone = run("unshare", "--pid", "--fork", "--mount-proc", BIN / "godwit", "ps")
    if os.geteuid() != 0:
        pytest.skip("a PID namespace of its own needs root")
    assert alone.returncode == 0, alone.stderr
    assert "no job" in alone.stdout


def test_godwit_ps_is_not_led_astray_by_other_peoples_memory():
    for content in (b"", b"godwit\0\0" + bytes(100), os.urandom(5000)):
        fd = os.memfd_create("godwit")
        os.write(fd, content)
        assert run(BIN / "godwit", "ps").returncode == 0
        os.close(fd)
