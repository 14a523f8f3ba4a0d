"""Whole memory in whole jobs: random programs against NumPy, optimizers against torch.optim, files from one number of
ranks to another, one copy of the bytes, and WholeMemory's own programs.

`make test-memory` runs all of it with GODWIT_MEMORY_CASES; otherwise a short selection.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import BIN, job_environment, run
from test_mpi import mpi, mpi4py_path, mpirun  # noqa: F401  (mpi is a fixture)

HERE = Path(__file__).parent
CASES = int(os.environ.get("GODWIT_MEMORY_CASES", "0"))
QUICK = {"GODWIT_TIMEOUT": "60", "OMP_NUM_THREADS": "1"}
long = pytest.mark.skipif(not CASES, reason="make test-memory runs it")


def godwit_run(n: int, *argv: str | Path, node_size: int = 0, timeout: float = 100, **environment: str):
    nodes = ["--node-size", str(node_size)] if node_size else []
    return run(BIN / "godwit", "run", "-n", str(n), *nodes, *argv, timeout=timeout, **QUICK, **environment)


def assert_passed(done: subprocess.CompletedProcess[str], n: int) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == n, done.stdout + done.stderr


# ---- against NumPy -------------------------------------------------------------------------------

SHAPES = [(n, node_size) for n in (1, 2, 3, 4) for node_size in (0, 1, 2) if node_size < n]


@pytest.mark.parametrize("n, node_size", [*SHAPES, (8, 3)] if CASES else [(4, 2)])
def test_random_programs_give_what_numpy_gives(n, node_size, leaves_nothing):
    done = godwit_run(n, HERE / "memory_values.py", "1", str(CASES or 20), node_size=node_size, timeout=60 + 10 * CASES)
    assert_passed(done, n)


@pytest.mark.parametrize("n, node_size", SHAPES if CASES else [(2, 1)])
def test_random_programs_give_the_same_with_mpi(mpi, n, node_size, leaves_nothing):  # noqa: F811
    nodes = {"GODWIT_NODE_SIZE": str(node_size)} if node_size else {}
    done = mpirun(mpi, n, sys.executable, HERE / "memory_values.py", "1000", str(CASES or 10), timeout=60 + 10 * CASES,
                  **QUICK, **nodes)
    assert_passed(done, n)


# ---- optimizers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n, node_size", [(1, 0), (2, 0), (4, 0), (2, 1), (4, 2)] if CASES else [(2, 1)])
def test_rows_are_stepped_as_torch_optim_steps_parameters(n, node_size, leaves_nothing):
    done = godwit_run(n, HERE / "memory_optimizers.py", "200" if CASES else "20", node_size=node_size, timeout=600)
    assert_passed(done, n)


# ---- files ---------------------------------------------------------------------------------------

STORE = """
import sys, torch, godwit
from godwit import memory
t = memory.empty((1003, 7), torch.float64)
t.local[:] = torch.arange(t.local_start * 7, (t.local_start + len(t.local)) * 7).reshape(-1, 7)
t.save(sys.argv[1] + "/whole.npy")
t.save(sys.argv[1] + "/whole.bin")
t.save(sys.argv[1] + "/parts.npy", parts=True)
"""

LOAD = """
import sys, torch, godwit
from godwit import memory
d = sys.argv[1]
expected = torch.arange(1003 * 7, dtype=torch.float64).reshape(-1, 7)
parts = [f"{d}/parts.part-{i}-of-4.npy" for i in range(4)]
for given in ((d + "/whole.npy",), (d + "/whole.bin", torch.float64, 7), (parts,)):
    with memory.from_file(*given) as t:
        assert torch.equal(t.torch(), expected), given
with memory.zeros((1003, 7), torch.float64) as t:
    for wrong, kind in ((d + "/short.npy", ValueError), (d + "/short.bin", ValueError), (d + "/none.bin", OSError),
                        (parts[:3], ValueError), (d + "/other.npy", ValueError)):
        try:
            t.load(wrong)
            raise AssertionError(wrong)
        except kind as refusal:
            name = wrong[0] if isinstance(wrong, list) else wrong
            assert name in str(refusal) or "another rank" in str(refusal), refusal
        assert (t.local == 0).all()
print("passed")
"""


def test_what_four_ranks_store_three_load_and_bad_files_are_refused_by_name(program, tmp_path, leaves_nothing):
    done = godwit_run(4, program(STORE, "store.py"), tmp_path)
    assert done.returncode == 0, done.stderr
    stored = np.load(tmp_path / "whole.npy")
    assert np.array_equal(stored, np.arange(1003 * 7.0).reshape(-1, 7))
    assert (tmp_path / "whole.bin").read_bytes() == stored.tobytes()
    assert not list(tmp_path.glob("*incomplete*"))
    (tmp_path / "short.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:-8])
    (tmp_path / "short.bin").write_bytes((tmp_path / "whole.bin").read_bytes()[:-56])
    np.save(tmp_path / "other.npy", np.zeros((1003, 7), np.float32))
    assert_passed(godwit_run(3, program(LOAD, "load.py"), tmp_path), 3)


# ---- one copy of the bytes -------------------------------------------------------------------------

ONE_COPY = """
import sys, time, torch, godwit
from godwit import memory
rows = int(sys.argv[1])
world = godwit.init()
torch.set_num_threads(1)
godwit.barrier()
started = time.monotonic()
t = memory.empty((rows, 64))
took = time.monotonic() - started
for r in range(world.size):
    if r == world.rank:
        t.torch()[r::1000] = r + 1.0                    # rows of all ranks
    t.comm.Barrier()
    assert (t.torch()[r::1000, 7] == r + 1.0).all()     # seen by all
    t.comm.Barrier()
t.local[:] = world.rank
t.comm.Barrier()
whole = t.torch()
sum = 0.0
for r in range(world.size):
    start, count = t.part(r)
    assert (whole[start:start + count:64] == r).all()
    sum += float(whole[start:start + count].sum())      # touches every page

def pss():
    address, inside, found = t.get_ptr(), False, 0
    for line in open("/proc/self/smaps"):
        head = line.split()[0]
        if "-" in head and not head.endswith(":"):
            low, high = (int(word, 16) for word in head.split("-"))
            inside = low < address + rows * 256 and high > address
        elif inside and head == "Pss:":
            found += int(line.split()[1]) * 1024
    return found

t.comm.Barrier()
before = pss()
t.comm.Barrier()
from godwit.comm import COMM_WORLD, MPI_SUM
total = COMM_WORLD.Allreduce(torch.tensor([before], dtype=torch.float64), MPI_SUM).item()
if world.rank == 0:
    print(f"created in {took:.2f} s, PSS {total / 2**30:.3f} GiB of {rows * 256 / 2**30:.3f} GiB", flush=True)
assert abs(total - rows * 256) < max(0.01 * rows * 256, 4 << 20), total  # pages of 2 MB
assert took < 3, took
print("passed")
"""


@pytest.mark.parametrize("rows", [pytest.param(10_000_000, marks=long), 200_000])
def test_there_is_one_copy_that_all_see_and_nothing_remains(program, rows, leaves_nothing):
    def shared() -> int:
        return next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("Shmem:"))

    before, n = shared(), 4 if CASES else 2
    assert_passed(godwit_run(n, program(ONE_COPY), str(rows), timeout=200), n)
    if rows > 1_000_000:  # of the whole machine, so other jobs' is in it
        assert shared() - before < rows * 256 / 1024 / 2


# ---- WholeMemory's own programs ---------------------------------------------------------------------

WHOLEGRAPH = HERE / "wholegraph_program.py"


def by_hand(n: int, channel: str, meeting: Path, **environment: str) -> None:
    """Processes that nobody launched."""
    processes = [subprocess.Popen([BIN / "godwit", "run", "--as", "wholegraph", WHOLEGRAPH, channel, str(rank), str(n), meeting],
                                  env=job_environment() | QUICK | environment, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE) for rank in range(n)]
    try:
        for rank, process in enumerate(processes):
            out, err = process.communicate(timeout=100)
            assert process.returncode == 0 and f"passed {rank} {n}" in out, out + err
    finally:
        for process in processes:
            process.kill()


@pytest.mark.parametrize("n", [1, 2, 4] if CASES else [2])
def test_a_program_of_wholegraph_runs_under_the_launcher(n, tmp_path, leaves_nothing):
    for part in range(3):
        np.arange(part * 10, part * 10 + 10, dtype=np.int32).tofile(tmp_path / f"list_part_{part}_of_3")
    done = godwit_run(n, "--as", "wholegraph", WHOLEGRAPH, "run", tmp_path / "id", WHOLEGRAPH_FILE=str(tmp_path / "list"))
    assert_passed(done, n)


@pytest.mark.parametrize("n", [1, 2, 4] if CASES else [2])
@pytest.mark.parametrize("channel", ["gloo", "file"] if CASES else ["file"])
def test_a_program_of_wholegraph_runs_started_by_hand(channel, n, tmp_path, leaves_nothing):
    by_hand(n, channel, tmp_path / "meeting")


@long
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_program_of_wholegraph_runs_with_mpi4py(mpi, n, leaves_nothing):  # noqa: F811
    done = mpirun(mpi, n, BIN / "godwit", "run", "--as", "wholegraph", WHOLEGRAPH, "mpi", **QUICK, timeout=100,
                  PYTHONPATH=mpi4py_path(mpi))
    assert_passed(done, n)
