"""kill -9 of any rank at any moment: every other rank says who it was, at once.

GODWIT_FAULT_RUNS runs each (20 and 8 here, 200 in `make test-faults`); GODWIT_FAULT_SEED replays one series.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from processes import BIN, assert_no_more_than, job_environment, traces

RUNS = int(os.environ.get("GODWIT_FAULT_RUNS", "20"))
PARAMS_RUNS = int(os.environ.get("GODWIT_FAULT_RUNS", "8"))
SEED = int(os.environ.get("GODWIT_FAULT_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)

# The ranks do the same random things, each at its own pace, until somebody dies.
CHATTER = """
import os, random, sys, time
print("pid", os.environ["GODWIT_RANK"], os.getpid(), flush=True)
import godwit

same = random.Random({seed})
try:
    me = godwit.init()
    mine = random.Random(me.rank)
    while True:
        what = same.choice(["barrier", "around", "all", "pause"])
        n = same.choice([0, 1, 5000, 3_000_000])
        if what == "barrier":
            godwit.barrier()
        elif what == "around":
            godwit.send((me.rank + 1) % me.size, bytes(n))
            assert len(godwit.recv((me.rank - 1) % me.size)) == n
        elif what == "all":
            for peer in range(me.size):
                godwit.send(peer, bytes(n))
            for peer in range(me.size):
                assert len(godwit.recv(peer)) == n
        else:
            time.sleep(mine.random() * 0.02)
except godwit.RankLost as lost:
    print(f"lost {{time.monotonic():.3f}} {{lost}}", file=sys.stderr, flush=True)
    sys.exit(3)
"""


def start(program, n: int, node_size: int) -> tuple[subprocess.Popen[str], list[int]]:
    job = subprocess.Popen([BIN / "godwit", "run", "-n", str(n), "--node-size", str(node_size), program],
                           env=job_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert job.stdout is not None
    pids = dict(tuple(map(int, job.stdout.readline().split()[-2:])) for _ in range(n))
    return job, [pids[rank] for rank in range(n)]


@contextlib.contextmanager
def time_for_others() -> Iterator[Callable[[], float]]:
    """How long somebody here, who wants to run for a moment a hundred times a second, has had to wait for a processor: on a busy
    machine ranks wait as well, before they can notice anything."""
    waited_s, over = 0.0, threading.Event()

    def run() -> None:
        nonlocal waited_s
        while not over.is_set():
            began = time.monotonic()
            time.sleep(0.01)
            waited_s += time.monotonic() - began - 0.01

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield lambda: waited_s
    finally:
        over.set()
        thread.join()


def assert_all_name(errors: str, n: int, victim: int, killed_at: float, limit_s: float = 2) -> None:
    for rank in set(range(n)) - {victim}:
        said = re.search(rf"^\[{rank}\] lost ([\d.]+) (.*)$", errors, re.M)
        assert said is not None, f"rank {rank} said nothing of rank {victim}:\n{errors}"
        assert said[2].startswith(f"rank {victim} "), said[2]
        assert float(said[1]) - killed_at < limit_s, f"rank {rank} noticed after {float(said[1]) - killed_at:.1f} s"


@pytest.mark.parametrize("turn", range(RUNS))
def test_a_rank_killed_at_any_moment_is_named_by_all_others_within_two_seconds(program, turn):
    chance = random.Random(SEED + turn)
    print(f"seed {SEED}, turn {turn}")
    before = traces()
    n = chance.choice([2, 3, 4])
    job, pids = start(program(CHATTER.format(seed=turn)), n, chance.choice([1, 2, n]))
    victim = chance.randrange(n)
    time.sleep(chance.random() * 0.2)
    killed_at = time.monotonic()
    os.kill(pids[victim], signal.SIGKILL)
    _, errors = job.communicate(timeout=30)
    assert_all_name(errors, n, victim, killed_at)
    assert job.returncode == 128 + signal.SIGKILL
    assert_no_more_than(before)


# Every rank does what it likes to the same keys, and meets the others now and then.  It is under way when it says so.
TRAFFIC = """
import array, atexit, os, random, sys, time
atexit.register(lambda: print("went in order", file=sys.stderr, flush=True))  # runs after all that is registered later
import godwit

KEYS, LENGTH = 600, 24
same = random.Random({seed})
n_calls = 0


def do_something(w):
    keys = array.array("q", mine.choices(range(KEYS), k=mine.choice([1, 5, 100])))
    rows = array.array("f", [1.0]) * (LENGTH * len(keys))
    what = mine.choice(["pull", "pull", "push", "push", "set", "localize", "intent", "intent", "clock", "clock", "wait_all"])
    if what == "clock":
        w.advance_clock()
    elif what == "wait_all":
        w.wait_all()
    elif what == "localize":
        w.localize(keys[:5], asynchronous=mine.random() < 0.7)
    elif what == "intent":
        start = w.current_clock + mine.randrange(4)
        w.intent(keys, start, start + 1 + mine.randrange(20))
    else:
        getattr(w, what)(keys, rows, asynchronous=mine.random() < 0.7)


try:
    me = godwit.init()
    mine = random.Random({seed} + 1 + me.rank)
    with godwit.Parameters(KEYS, LENGTH) as kv, kv.worker() as w:
        w.end_setup()
        print("pid", me.rank, os.getpid(), flush=True)
        while True:
            for _ in range(mine.randrange(200)):
                do_something(w)
                n_calls += 1
            getattr(w, same.choice(["barrier", "wait_sync", "wait_sync", "begin_setup"]))()
except godwit.RankLost as lost:
    print(f"lost {{time.monotonic():.3f}} {{lost}}", file=sys.stderr, flush=True)
    print(f"after {{n_calls}} calls", file=sys.stderr, flush=True)
    sys.exit(3)
"""


@pytest.mark.parametrize("turn", range(PARAMS_RUNS))
def test_a_rank_killed_amid_traffic_of_parameters_is_named_by_all_others_within_two_seconds(program, turn):
    chance = random.Random(SEED + turn)
    print(f"seed {SEED}, turn {turn}")
    before = traces()
    n, node_size = chance.choice([2, 3, 4]), chance.choice([1, 1, 2])
    job, pids = start(program(TRAFFIC.format(seed=SEED + turn)), n, node_size)
    victim = chance.randrange(n)
    time.sleep(chance.random() * 0.3)
    with time_for_others() as waited_s:
        killed_at = time.monotonic()
        os.kill(pids[victim], signal.SIGKILL)
        _, errors = job.communicate(timeout=30)
    assert_all_name(errors, n, victim, killed_at, 2 + waited_s())
    assert errors.count("] went in order") == n - 1, errors
    assert job.returncode == 128 + signal.SIGKILL
    assert_no_more_than(before)


# Forked children inherit whatever a rank has; they must not keep it alive.
WITH_CHILD = """
import os, sys, time
import godwit
import torch.utils.data

me = godwit.init()


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, i):
        if me.rank == 1 and i == 8:
            os.kill(os.getppid(), 9)
            time.sleep(3)  # this child outlives its rank
        return torch.zeros(1)


loader = iter(torch.utils.data.DataLoader(Slow(), num_workers=1, multiprocessing_context="fork"))
godwit.barrier()
try:
    for _ in loader:
        godwit.barrier()
except godwit.RankLost as lost:
    print(f"lost {time.monotonic():.3f} {lost}", file=sys.stderr, flush=True)
    os._exit(3)
"""


def test_a_death_is_noticed_while_a_forked_child_of_the_rank_lives_on(program, leaves_nothing):
    started = time.monotonic()
    done = subprocess.run([BIN / "godwit", "run", "-n", "2", program(WITH_CHILD)], env=job_environment(),
                          capture_output=True, text=True, timeout=60)
    assert re.search(r"^\[0\] lost [\d.]+ rank 1 ", done.stderr, re.M), done.stderr
    assert done.returncode == 128 + signal.SIGKILL
    assert time.monotonic() - started < 30
