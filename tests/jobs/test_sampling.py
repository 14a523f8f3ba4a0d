"""Samples in whole jobs: the checks of sampling_values.py on one node and on several, and the end of a worker that samples."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import BIN, run

VALUES = Path(__file__).with_name("sampling_values.py")
QUICK = {"GODWIT_TIMEOUT": "60", "OMP_NUM_THREADS": "1"}
CHECKS = VALUES.read_text().count("\ndef check_") - 1  # one is what others are made of


def passed(n: int, node_size: int, *checks: str) -> int:
    """How many checks passed on all ranks together."""
    done = run(BIN / "godwit", "run", "-n", str(n), "--node-size", str(node_size), VALUES, *checks, timeout=100, **QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.count("passed: ")


@pytest.mark.parametrize("n", [1, 2, 4])
def test_samples_are_as_the_distributions_say_on_so_many_nodes(n, leaves_nothing):
    assert passed(n, 1) == n * CHECKS


def test_the_same_with_several_processes_on_a_node(leaves_nothing):
    assert passed(4, 2, "preloc_draws", "local_draws", "disagree") == 4 * 3


LEFT = """
import numpy as np
import godwit

me = godwit.init()
keys, values = np.empty(10, np.int64), np.empty((10, 4), np.float32)
for scheme in ("naive", "preloc", "pool", "local"):
    kv = godwit.Parameters(1000, 4, workers=2)
    kv.enable_sampling(scheme, weights=np.arange(1000))
    w, other = kv.worker(), kv.worker()
    for _ in range(50):
        h = w.prepare_sample(100, w.current_clock + 3)
        w.pull_sample(h, keys, values, asynchronous=True)
        other.prepare_sample(100)
        w.advance_clock()
    if me.rank == 0:
        w.close()                                # with samples that nobody finished
    kv.close()
"""


def test_workers_end_with_samples_that_are_not_finished(program, leaves_nothing):
    done = run(BIN / "godwit", "run", "-n", "2", "--node-size", "1", program(LEFT), timeout=60, **QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
