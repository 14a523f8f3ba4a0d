"""godwit.Parameters in jobs: the checks of params_values.py, endings, and processes that stop where others wait."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from processes import BIN, run

VALUES = Path(__file__).with_name("params_values.py")


def run_job(program: Path, n: int, **environment: str):
    return run(BIN / "godwit", "run", "-n", str(n), sys.executable, program, timeout=100,
               **{"GODWIT_TIMEOUT": "60", "OMP_NUM_THREADS": "1", **environment})


@pytest.mark.parametrize("n, node_size", [(2, 2), (4, 4), (4, 2)])
def test_values(n, node_size, leaves_nothing):
    done = run_job(VALUES, n, GODWIT_NODE_SIZE=str(node_size))
    assert done.returncode == 0, done.stdout + done.stderr
    checks = VALUES.read_text().count("\ndef check_")
    assert done.stdout.count("passed: ") == n * checks


@pytest.mark.parametrize("node_size", ["4", "1"])
def test_who_leaves_without_closing_is_named_to_those_who_close(program, node_size, leaves_nothing):
    done = run_job(program("""
import godwit
me = godwit.init()
kv = godwit.Parameters(10, 4)
w = kv.worker()
if me.rank != 1:
    for call in (w.barrier, kv.close):
        try:
            call()
        except ConnectionError as error:
            print("lost:", str(error).splitlines()[0])
    assert kv.closed
"""), 3, GODWIT_NODE_SIZE=node_size)
    assert done.returncode == 0, done.stderr
    # who looks late sees that another one is gone as well, because of rank 1
    lost = re.findall(r"lost: (?:rank 0 and )?rank 1 (?:and rank 2 )?ha", done.stdout)
    assert len(lost) == 4, done.stdout


@pytest.mark.parametrize("node_size", ["4", "1"])
def test_an_exception_in_one_rank_is_not_held_up_by_the_with_block(program, node_size, leaves_nothing):
    done = run_job(program("""
import godwit
me = godwit.init()
with godwit.Parameters(10, 4) as kv:
    w = kv.worker()
    if me.rank == 1:
        raise ValueError("one is not amused")
    w.barrier()
"""), 2, GODWIT_NODE_SIZE=node_size)
    assert done.returncode != 0
    assert "one is not amused" in done.stderr and "RankLost: rank 1" in done.stderr


@pytest.mark.parametrize("node_size", ["4", "1"])
def test_a_rank_that_is_killed_is_named_at_the_barrier(program, node_size, leaves_nothing):
    done = run_job(program("""
import os, signal, time
import godwit
me = godwit.init()
kv = godwit.Parameters(1000, 64)
w = kv.worker()
w.barrier()
if me.rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
started = time.monotonic()
try:
    w.barrier()
except godwit.RankLost as error:
    print("lost:", str(error).splitlines()[0], flush=True)
    assert time.monotonic() - started < 10
"""), 4, GODWIT_NODE_SIZE=node_size)
    # The launcher may end the others when it sees the first one die; whoever spoke has named it.
    said = [line for line in done.stdout.splitlines() if "lost:" in line]
    assert all("rank 2" in line for line in said), done.stdout
    assert "rank 2" in done.stdout + done.stderr


@pytest.mark.parametrize("node_size", ["2", "1"])
@pytest.mark.parametrize("call", ["godwit.Parameters(10, 4)", "kv.close()", "w.barrier()"])
def test_ctrl_c_ends_what_waits_for_other_ranks(program, call, node_size, leaves_nothing):
    done = run_job(program(f"""
import os, signal, threading, time
import godwit
me = godwit.init()
kv = godwit.Parameters(10, 4)
w = kv.worker()
if me.rank == 0:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    try:
        {call}
    except KeyboardInterrupt:
        print(f"interrupted, {{time.monotonic() - started < 10}}", flush=True)
    godwit.send(1, b"")
else:
    godwit.recv(0)       # comes to nothing that rank 0 waits for
"""), 2, GODWIT_NODE_SIZE=node_size)
    assert "interrupted, True" in done.stdout, done.stdout + done.stderr


STOPPED = """
import os, signal, sys, threading, time
import numpy as np
import godwit

me = godwit.init()
kv = godwit.Parameters(2, 2048)
w = kv.worker()
keys, updates = np.array([1, 0]), np.ones((2, 2048), np.float32)  # 16 KiB: a push keeps the interpreter to itself
if me.rank == 2:
    time.sleep(100)                              # its node is the home of key 1
if me.rank == 1:
    godwit.send(0, str(os.getpid()).encode())
    while True:
        w.push(keys[1:], updates[1:])            # has the latch most of the time

peer = int(godwit.recv(1))
state = {"pushing": 0, "seen": 0}                # the number of the push that is under way

def watch():
    # Runs only if the push that waits lets go of the interpreter.
    while True:
        before = state["pushing"]
        time.sleep(0.3)
        if before and state["pushing"] == before:
            state["seen"] += 1
            if INTERRUPT:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1)
            os.kill(peer, signal.SIGCONT)

threading.Thread(target=watch, daemon=True).start()
for attempt in range(1, 500):
    time.sleep(0.001 * (attempt % 7))
    os.kill(peer, signal.SIGSTOP)
    state["pushing"] = attempt
    try:
        w.push(keys, updates)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    state["pushing"] = 0
    os.kill(peer, signal.SIGCONT)
    if state["seen"]:
        break
print("seen", state["seen"] > 0, kv.stats()["latch_waits"] > 0, flush=True)
os.kill(peer, signal.SIGKILL)
os._exit(0)
"""


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("interrupt", [False, True])
def test_a_small_call_that_waits_for_a_latch_lets_other_threads_run_and_heeds_ctrl_c(
        program, interrupt, nodes, leaves_nothing):
    done = run_job(program(STOPPED.replace("INTERRUPT", str(interrupt))), 1 + nodes, GODWIT_NODE_SIZE="2")
    assert "seen True True" in done.stdout, done.stdout + done.stderr
    assert ("interrupted" in done.stdout) == interrupt
