"""Checkpoints of whole jobs: saved by some processes and loaded by others, on every fabric; Ctrl-C; errors on all ranks.

Numbers of ranks and nodes, killed saves and full disks are tried in C: src/params/checkpoint_test.c, tests/params/killed.c.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from processes import BIN, job_environment, run
from safetensors.numpy import load_file
from test_mpi import mpi, mpirun  # noqa: F401  (mpi is a fixture)

QUICK = {"GODWIT_TIMEOUT": "60", "OMP_NUM_THREADS": "1"}

# `save DIR` or `load DIR`; keys of four lengths, some of which are away from home, and some on several nodes.
JOB = """
import sys
import numpy as np
import godwit

me = godwit.init()
lengths = [1 + 5 * (k % 4) for k in range(1001)]
with godwit.Parameters(1001, lengths) as kv, kv.worker() as w:
    keys = np.arange(1001)
    values = np.random.default_rng(1).standard_normal(sum(lengths)).astype(np.float32)
    if sys.argv[1] == "save":
        w.begin_setup()
        if me.rank == 0:
            w.set(keys, values)
        w.end_setup()
        w.localize(np.ascontiguousarray(keys[me.rank::me.size + 1]))
        w.intent(np.ascontiguousarray(keys[::7]), 0, 1000)
        w.wait_sync()
        kv.save(sys.argv[2], {"rank": "all", "n": me.size})
    else:
        meta = kv.load(sys.argv[2])
        found = np.empty_like(values)
        w.pull(keys, found)
        print(f"{meta['n']} saved, {me.size} loaded, equal: {np.array_equal(found, values)}")
    w.barrier()
"""


def loaded(done, n: int, saved: int = 4) -> bool:
    return done.returncode == 0 and done.stdout.count(f"{saved} saved, {n} loaded, equal: True") == n


def test_what_four_ranks_saved_others_load_and_other_programs_read(program, tmp_path, leaves_nothing):
    job, directory = program(JOB), tmp_path / "model"
    done = run(BIN / "godwit", "run", "-n", "4", "--node-size", "2", job, "save", directory, **QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(BIN / "godwit", "run", "-n", "3", "--node-size", "1", job, "load", directory, **QUICK)
    assert loaded(done, 3), done.stdout + done.stderr

    what = json.loads((directory / "checkpoint.json").read_text())
    assert [(part["rank"], part["node"]) for part in what["parts"]] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    lengths = [1 + 5 * (k % 4) for k in range(1001)]
    places = np.concatenate([[0], np.cumsum(lengths)])
    values = np.random.default_rng(1).standard_normal(sum(lengths)).astype(np.float32)
    seen = []
    for part in what["parts"]:
        arrays = load_file(directory / part["file"])
        assert sum(len(arrays[name]) for name in arrays if name.startswith("keys")) == part["keys"]
        for length in (1, 6, 11, 16):
            for key, row in zip(arrays[f"keys.{length}"], arrays[f"values.{length}"]):
                assert np.array_equal(row, values[places[key]:places[key + 1]])
            seen += arrays[f"keys.{length}"].tolist()
    assert sorted(seen) == list(range(1001))

    shown = run(BIN / "godwit", "checkpoint", "show", directory)
    assert shown.returncode == 0 and shown.stdout.count("  ok\n") == 4 and "4 ranks on 2 nodes" in shown.stdout


def test_the_same_with_mpi(mpi, program, tmp_path):  # noqa: F811
    job, directory = program(JOB), tmp_path / "model"
    done = mpirun(mpi, 2, sys.executable, job, "save", directory, **QUICK, GODWIT_NODE_SIZE="1", timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(sys.executable, job, "load", directory, **QUICK)
    assert loaded(done, 1, saved=2), done.stdout + done.stderr


REFUSED = """
import sys
import numpy as np
import godwit

me = godwit.init()
with godwit.Parameters(100, 8) as kv, kv.worker() as w:
    for call in (lambda: kv.save(sys.argv[1], {"a": object()} if me.rank == 1 else {}),
                 lambda: kv.save(sys.argv[1], {"a": me.rank}),
                 lambda: kv.load(sys.argv[1]),
                 lambda: kv.save("/proc/nowhere/model")):
        try:
            call()
        except godwit.Error as error:
            print(type(error).__name__, error)
    kv.save(sys.argv[1])
"""


def test_an_error_of_one_rank_is_told_by_all(program, tmp_path, leaves_nothing):
    done = run(BIN / "godwit", "run", "-n", "2", "--node-size", "1", program(REFUSED), tmp_path / "model", **QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [re.findall(rf"^\[{rank}\] (.*)$", done.stdout, re.M) for rank in range(2)]
    expected = (("RanksDisagree rank 1 was refused its arguments, so nobody saves", "InvalidType meta: "),
                ("RanksDisagree save: meta is not the same here and on rank 1", "RanksDisagree save: meta is not the same here and on rank 0"),
                ("SystemFailure there is no checkpoint in", "SystemFailure rank 0: there is no checkpoint in"),
                ("SystemFailure cannot make the directory /proc/nowhere/model", "SystemFailure rank 0: cannot make the directory"))
    for number, texts in enumerate(expected):
        for rank, text in enumerate(texts):
            assert said[rank][number].startswith(text), said[rank][number]


INTERRUPTED = """
import sys
import numpy as np
import godwit

with godwit.Parameters(20_000, 64) as kv, kv.worker() as w:
    w.push(np.arange(20_000), np.ones((20_000, 64), np.float32))
    kv.save(sys.argv[1], {"round": 0})
    print("ready", flush=True)
    try:
        for number in range(1, 10_000):
            kv.save(sys.argv[1], {"round": number})
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_save_and_leaves_a_whole_checkpoint(program, tmp_path):
    job = subprocess.Popen([sys.executable, program(INTERRUPTED), tmp_path / "model"], env=job_environment(),
                           stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    time.sleep(0.2)
    os.kill(job.pid, signal.SIGINT)
    out, _ = job.communicate(timeout=30)
    assert out == "interrupted\n"
    assert run(BIN / "godwit", "checkpoint", "show", tmp_path / "model").returncode == 0
    assert [path.name for path in Path(tmp_path / "model").glob(".*")] == []
