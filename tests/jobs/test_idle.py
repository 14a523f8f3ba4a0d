"""A job that has nothing to do takes next to nothing."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
from processes import BIN, job_environment

WAITING = """
import os, sys, time
import godwit
me = godwit.init()
print("pid", me.rank, os.getpid(), flush=True)
{what}
"""


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of all of them so far."""
    ticks = 0
    for pid in pids:
        fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("what", ["godwit.recv(me.rank)", "godwit.barrier() if me.rank else sys.stdin.read()", "sys.stdin.read()"],
                         ids=["in recv", "in a barrier", "in Python"])
def test_an_idle_job_of_four_ranks_uses_under_two_percent_of_a_core(program, what, capsys):
    job = subprocess.Popen([BIN / "godwit", "run", "-n", "4", program(WAITING.format(what=what))], env=job_environment(),
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert job.stdout is not None
    pids = [int(job.stdout.readline().split()[-1]) for _ in range(4)]
    time.sleep(0.5)
    before, started = cpu_seconds(pids), time.monotonic()
    time.sleep(3)
    share = (cpu_seconds(pids) - before) / (time.monotonic() - started)
    job.terminate()
    job.communicate(timeout=20)
    with capsys.disabled():
        print(f"4 idle ranks, {what!r}: {100 * share:.2f} % of a core", end=" ")
    assert share < 0.02
