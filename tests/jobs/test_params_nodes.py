"""godwit.Parameters of several nodes: the checks of params_nodes.py on every fabric, processes that are killed, Ctrl-C, and
an interpreter that somebody holds."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from processes import BIN, run
from test_mpi import mpi, mpirun  # noqa: F401  (mpi is a fixture)

NODES = Path(__file__).with_name("params_nodes.py")
QUICK = {"GODWIT_TIMEOUT": "60", "OMP_NUM_THREADS": "1"}


def godwit_run(program: Path, n: int, node_size: int):
    return run(BIN / "godwit", "run", "-n", str(n), "--node-size", str(node_size), program, timeout=100, **QUICK)


def assert_all_passed(done, n: int) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed: ") == n * NODES.read_text().count("\ndef check_")


@pytest.mark.parametrize("n, node_size", [(2, 1), (4, 1), (4, 2), (8, 2), (8, 8)])
def test_totals_are_exact_and_keys_come_where_they_are_wanted(n, node_size, leaves_nothing):
    assert_all_passed(godwit_run(NODES, n, node_size), n)


@pytest.mark.parametrize("n, node_size", [(2, 1), (4, 2)])
def test_the_same_with_mpi(mpi, n, node_size, leaves_nothing):  # noqa: F811
    done = mpirun(mpi, n, sys.executable, NODES, **QUICK, GODWIT_NODE_SIZE=str(node_size), timeout=100)
    assert_all_passed(done, n)


# ---- processes that are killed -------------------------------------------------------------------

# The victim is stopped first, so that the others are in a wait for sure when it is killed.
KILLED = """
import os, signal, sys, threading, time
import numpy as np
import godwit

VICTIM, CALL = {victim}, {call!r}
me = godwit.init()
kv = godwit.Parameters(400, 8)
w = kv.worker()
keys, values = np.arange(400), np.ones((400, 8), np.float32)
w.end_setup()
if me.rank == VICTIM:
    pid = os.getpid()
    if os.fork() == 0:                       # nobody counts on the child
        time.sleep(0.3)
        print(f"killed {{time.monotonic():.3f}}", file=sys.stderr, flush=True)
        os.kill(pid, signal.SIGKILL)
        os._exit(0)
    os.kill(pid, signal.SIGSTOP)

calls = {{"pull": lambda: w.pull(keys, values), "push": lambda: w.push(keys, values), "set": lambda: w.set(keys, values),
         "localize": lambda: w.localize(keys), "wait_sync": w.wait_sync, "end_setup": w.end_setup,
         "wait": lambda: w.wait(w.push(keys, values, asynchronous=True)),
         "intent": lambda: (w.intent(keys, 0, 100), w.wait_sync())}}
time.sleep(0.1)
try:
    while True:
        calls[CALL]()
except godwit.RankLost as lost:
    print(f"lost {{time.monotonic():.3f}} {{lost}}", file=sys.stderr, flush=True)
    sys.exit(3)
"""


@pytest.mark.parametrize("n, node_size, victim, call", [
    (2, 1, 1, "pull"), (2, 1, 0, "push"), (2, 1, 1, "set"), (2, 1, 1, "localize"), (2, 1, 0, "wait_sync"), (2, 1, 1, "wait"),
    (2, 1, 1, "end_setup"), (2, 1, 1, "intent"), (4, 2, 0, "pull"), (4, 2, 2, "wait"), (4, 2, 3, "end_setup")])
def test_a_wait_for_a_process_that_is_killed_ends_and_names_it(program, n, node_size, victim, call, leaves_nothing):
    done = godwit_run(program(KILLED.format(victim=victim, call=call)), n, node_size)
    killed = re.search(r"killed ([\d.]+)", done.stderr)
    assert killed is not None, done.stdout + done.stderr
    for rank in set(range(n)) - {victim}:
        said = re.search(rf"^\[{rank}\] lost ([\d.]+) (.*)$", done.stderr, re.M)
        assert said is not None, f"rank {rank} said nothing of rank {victim}:\n{done.stderr}"
        assert said[2].startswith(f"rank {victim} "), said[2]
        assert float(said[1]) - float(killed[1]) < 4, said[0]


# ---- Ctrl-C --------------------------------------------------------------------------------------

# A thread sends the signal, so it has the interpreter while the call waits for a process that is stopped.
INTERRUPTED = """
import os, signal, threading, time
import numpy as np
import godwit

me = godwit.init()
kv = godwit.Parameters(1000, 8)
w = kv.worker()
if me.rank == 1:
    godwit.send(0, str(os.getpid()).encode())
    godwit.recv(0)
    w.localize(np.arange(1000))
    w.barrier()
    kv.close()
    raise SystemExit

peer = int(godwit.recv(1))
few, many = np.arange(1, 20), np.arange(1000)
def rows(keys):
    return np.ones((len(keys), 8), np.float32)
calls = [("pull few", lambda: w.pull(few, rows(few))), ("pull many", lambda: w.pull(many, rows(many))),
         ("push", lambda: w.push(few, rows(few))), ("set", lambda: w.set(few, rows(few))),
         ("wait", lambda: w.wait(w.pull(few, rows(few), True))),
         ("wait_all", lambda: (w.push(few, rows(few), True), w.wait_all())),
         ("localize", lambda: w.localize(few)), ("wait_sync", lambda: (w.intent(many, 0), w.wait_sync())),
         ("barrier", w.barrier), ("close", lambda: (w.pull(many, rows(many), True), w.close()))]
for name, call in calls:
    if name == "close":
        w.advance_clock()
        w.wait_sync()                            # nobody here wants the keys any more
        godwit.send(1, b"")                      # rank 1 takes them
        w.barrier()                              # the same one
        while w.is_local(many).any():
            time.sleep(0.001)
    os.kill(peer, signal.SIGSTOP)
    while any(open(f"/proc/{peer}/task/{thread}/stat").read().rsplit(")")[-1].split()[0] != "T"
              for thread in os.listdir(f"/proc/{peer}/task")):
        time.sleep(0.001)                        # it takes a moment, in which the agent could answer
    timer = threading.Timer(0.15, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    try:
        call()
    except KeyboardInterrupt:
        print("interrupted", name, time.monotonic() - started < 5, flush=True)
    else:
        print("finished", name, flush=True)
        try:
            timer.join()
            time.sleep(0.1)
        except KeyboardInterrupt:
            pass
    os.kill(peer, signal.SIGCONT)
    if name not in ("barrier", "close"):
        w.wait_all()                             # it goes on as if nothing had been
        values = rows(many)
        w.pull(many, values)
        assert (values == values[:, :1]).all()
assert w.closed
kv.close()
print("the end", flush=True)
"""


def test_ctrl_c_ends_every_wait_and_other_threads_run_meanwhile(program, leaves_nothing):
    done = godwit_run(program(INTERRUPTED), 2, 1)
    assert done.returncode == 0 and "the end" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("interrupted") == 10 and "False" not in done.stdout, done.stdout


# ---- the interpreter is held ---------------------------------------------------------------------

# Rank 1 sleeps in C and does not let go of the interpreter: what rank 0 gets meanwhile comes from rank 1's agent alone.
HELD = """
import ctypes, time
import numpy as np
import godwit

HELD_S = 1.2
me = godwit.init()
with godwit.Parameters(1000, 8) as kv, kv.worker() as w:
    everything = np.arange(1000)
    theirs = everything[w.is_local(everything) == (me.rank == 1)]       # those of rank 1's node
    if me.rank == 1:
        w.set(theirs, np.repeat(theirs[:, None], 8, 1).astype(np.float32))
    w.end_setup()
    if me.rank == 1:
        began = time.monotonic()
        ctypes.PyDLL(None).usleep(int(HELD_S * 1e6))
        ended = time.monotonic()
        godwit.send(0, f"{began} {ended}".encode())
    else:
        chance, values, calls = np.random.default_rng(1), np.empty((20, 8), np.float32), []
        started = time.monotonic()
        while time.monotonic() < started + HELD_S:
            keys, begin = chance.choice(theirs, 20), time.monotonic()
            w.pull(keys, values)
            calls.append((begin, time.monotonic()))
            assert (values == keys[:, None]).all()
        began, ended = map(float, godwit.recv(1).split())
        served = sum(began < begin and end < ended for begin, end in calls)
        print(f"{served} of {len(calls)} calls while the interpreter was held for {ended - began:.3f} s")
        assert served >= 100
        assert kv.stats()["keys_remote"] == 20 * len(calls), kv.stats()
    w.barrier()
"""


def test_an_agent_serves_others_while_a_call_of_its_process_holds_the_interpreter(program, leaves_nothing):
    done = godwit_run(program(HELD), 2, 1)
    assert done.returncode == 0 and "calls while the interpreter was held" in done.stdout, done.stdout + done.stderr
