"""kill -9 of any rank at any moment: every other rank says who it was, at once.

GODWIT_FAULT_RUNS runs (20 here, 200 in `make test-faults`); GODWIT_FAULT_SEED replays one series.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time

import pytest
from processes import BIN, assert_no_more_than, job_environment, traces

RUNS = int(os.environ.get("GODWIT_FAULT_RUNS", "20"))
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


def assert_all_name(errors: str, n: int, victim: int, killed_at: float) -> None:
    for rank in set(range(n)) - {victim}:
        said = re.search(rf"^\[{rank}\] lost ([\d.]+) (.*)$", errors, re.M)
        assert said is not None, f"rank {rank} said nothing of rank {victim}:\n{errors}"
        assert said[2].startswith(f"rank {victim} "), said[2]
        assert float(said[1]) - killed_at < 2, f"rank {rank} noticed after {float(said[1]) - killed_at:.1f} s"


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
