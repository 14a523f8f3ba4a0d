"""Samples in whole jobs: the checks of sampling_values.py on one node and on several, and the end of a worker that samples."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import BIN, run

VALUES = Path(__file__).with_name("sampling_values.py")
QUICK = {"GODWIT_TIMEOUT": "60", "OMP_NUM_THREADS": "1"}
CHECKS = VALUES.read_text().count("\ndef check_") - 1  # one is what others are made of


@pytest.mark.parametrize("n, node_size, draws", [(1, 1, 1024000), (2, 1, 1024000), (4, 1, 1024000), (4, 2, 512000)])
def test_samples_are_as_the_distributions_say(n, node_size, draws, leaves_nothing):
    done = run(BIN / "godwit", "run", "-n", str(n), "--node-size", str(node_size), VALUES, timeout=100, **QUICK,
               GODWIT_SAMPLES=str(draws))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed: ") == n * CHECKS


LEFT = """
import sys
import numpy as np
import godwit

me = godwit.init()
kv = godwit.Parameters(1000, 4, workers=2)
kv.enable_sampling(sys.argv[1], weights=np.arange(1000))
w, other = kv.worker(), kv.worker()
keys, values = np.empty(10, np.int64), np.empty((10, 4), np.float32)
for _ in range(50):
    h = w.prepare_sample(100, w.current_clock + 3)
    w.pull_sample(h, keys, values, asynchronous=True)
    other.prepare_sample(100)
    w.advance_clock()
if me.rank == 0:
    w.close()                                # with samples that nobody finished
kv.close()
"""


@pytest.mark.parametrize("scheme", ["naive", "preloc", "pool", "local"])
def test_workers_end_with_samples_that_are_not_finished(program, scheme, leaves_nothing):
    done = run(BIN / "godwit", "run", "-n", "2", "--node-size", "1", program(LEFT), scheme, timeout=60, **QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
