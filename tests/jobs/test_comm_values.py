"""What godwit.comm gives: values, gradients, refusals; outside and inside torch.jit.script and torch.compile."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from comm_fabrics import LAUNCHERS, run_job
from processes import run

torch = pytest.importorskip("torch")

HERE = Path(__file__).parent
VALUES = HERE / "comm_values.py"
# The checks, read from the program without running it.
NAMES = [name for name in re.findall(r"^def (\w+)\(\):", VALUES.read_text(), re.M)]
JOBS = [("shm", 1), ("shm", 3), ("openmpi", 3), ("mpich", 2)]

outputs: dict[tuple[str, int], tuple[int, str]] = {}


def output_of(fabric: str, n: int) -> tuple[int, str]:
    """Of one run of all checks, however many tests look at it."""
    if (fabric, n) not in outputs:
        done = run_job(fabric, n, VALUES)
        outputs[fabric, n] = done.returncode, done.stdout + done.stderr
    return outputs[fabric, n]


@pytest.mark.parametrize("fabric, n", JOBS)
@pytest.mark.parametrize("name", NAMES)
def test(name, fabric, n):
    code, text = output_of(fabric, n)
    assert len(re.findall(rf"passed {name}$", text, re.M)) == n, text[-4000:]


@pytest.mark.parametrize("fabric, n", JOBS)
def test_all_checks_ran_to_their_end(fabric, n):
    code, text = output_of(fabric, n)
    assert code == 0, text[-4000:]


# ---- inside what PyTorch makes of a function -----------------------------------------------------


def passed(done, name: str) -> int:
    return len(re.findall(rf"passed {name}$", done.stdout, re.M))


@pytest.mark.parametrize("n", [1, 3])
def test_scripted_functions_give_what_plain_ones_give(n):
    done = run_job("shm", n, HERE / "comm_scripted.py", "script")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    for name in ("everything", "everything_in_place", "exchange", "halo", "module"):
        assert passed(done, f"script {name}") == n


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_functions_give_what_plain_ones_give_in_the_same_order(backend, tmp_path):
    if not hasattr(torch.library, "register_autograd"):
        pytest.skip("this PyTorch cannot compile operators with effects")
    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("no C++ compiler for inductor")
    done = run_job("shm", 2, HERE / "comm_scripted.py", backend, timeout=280, GODWIT_TIMEOUT="200",
                   TORCHINDUCTOR_CACHE_DIR=str(tmp_path), TORCHINDUCTOR_COMPILE_THREADS="1")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    for name in ("everything", "everything_in_place", "exchange", "halo") if backend == "aot_eager" else ("exchange",):
        assert passed(done, f"{backend} {name}") == 2
    assert passed(done, "order") == 2


# ---- communicators of others --------------------------------------------------------------------------


FROM_TORCH = """
import torch
import torch.distributed as dist
import godwit
from godwit.comm import COMM_WORLD, comm_from_torch

me = godwit.init()
dist.init_process_group("gloo", init_method="file://" + __file__ + ".store", rank=me.rank, world_size=me.size)
assert comm_from_torch() is COMM_WORLD
members = [2, 0]
group = dist.new_group(members)
group_ranks = dist.get_process_group_ranks(group)
if me.rank in members:
    comm = comm_from_torch(group)
    assert comm.size == 2 and group_ranks[comm.rank] == me.rank
    assert comm.Allgather(torch.tensor([me.rank]), 0).tolist() == group_ranks
dist.barrier()
print("all well", flush=True)
dist.destroy_process_group()
"""


def test_process_groups_of_torch_become_communicators(program):
    done = run_job("shm", 3, program(FROM_TORCH))
    assert done.returncode == 0 and done.stdout.count("all well") == 3, done.stdout + done.stderr


FROM_MPI4PY = """
import torch
from mpi4py import MPI
import godwit
from godwit.comm import COMM_WORLD, MPI_SUM, comm_from_mpi4py

world = MPI.COMM_WORLD
assert comm_from_mpi4py(world) is COMM_WORLD and COMM_WORLD.size == 4
part = world.Split(world.rank % 2, -world.rank)
comm = comm_from_mpi4py(part)
assert (comm.rank, comm.size) == (part.rank, part.size)
x = torch.ones(3, dtype=torch.float64, requires_grad=True)
comm.Allreduce(x * world.rank, MPI_SUM).sum().backward()
assert (x.grad == 2 * world.rank).all()
try:
    comm_from_mpi4py("a word")
except godwit.InvalidType as error:
    assert "comm" in str(error)
print("all well", flush=True)
"""


@pytest.mark.parametrize("fabric", ["openmpi", "mpich"])
def test_communicators_of_mpi4py_become_communicators(fabric, program):
    path = HERE.parents[1] / "build" / f"mpi4py-{fabric}"
    if not (path / "mpi4py").is_dir():
        pytest.skip("mpi4py could not be built")
    paths = os.pathsep.join(part for part in (os.environ.get("PYTHONPATH"), str(path)) if part)
    done = run_job(fabric, 4, program(FROM_MPI4PY), PYTHONPATH=paths)
    assert done.returncode == 0 and done.stdout.count("all well") == 4, done.stdout + done.stderr


def test_a_communicator_of_another_world_is_refused(program):
    alone = program("from mpi4py import MPI\nimport godwit\ngodwit.init(rank=0, size=1)\n"
                    "godwit.comm_from_mpi4py(MPI.COMM_WORLD)\n")
    path = HERE.parents[1] / "build" / "mpi4py-openmpi"
    if shutil.which(LAUNCHERS["openmpi"][0]) is None or not (path / "mpi4py").is_dir():
        pytest.skip("no mpi4py for Open MPI")
    done = run(*LAUNCHERS["openmpi"], "-n", "2", sys.executable, alone, PYTHONPATH=str(path))
    assert done.returncode != 0 and "let one launcher start both" in done.stderr, done.stderr
