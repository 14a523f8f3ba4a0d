"""One small program, started in every way there is, finds itself in the right world."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import BIN, job_environment, run

import godwit

WHO = """
import sys
import godwit

me = godwit.init()
assert godwit.init() is me
godwit.send((me.rank + 1) % me.size, f"{me.rank}".encode())
before = int(godwit.recv((me.rank - 1) % me.size))
godwit.barrier()
print(f"I am {me.rank} of {me.size}, node {me.node} of {me.nodes}, {me.local_rank} of {me.local_size} there, after {before}",
      flush=True)
"""


def worlds(output: str) -> list[tuple[int, ...]]:
    """(rank, size, node, nodes, local rank, local size, rank before), sorted by rank."""
    pattern = r"I am (\d+) of (\d+), node (\d+) of (\d+), (\d+) of (\d+) there, after (\d+)"
    return sorted(tuple(int(number) for number in found) for found in re.findall(pattern, output))


def expected(size: int, node_size: int | None = None) -> list[tuple[int, ...]]:
    k = node_size or size
    nodes = -(-size // k)
    return [(r, size, r // k, nodes, r % k, min(k, size - r // k * k), (r - 1) % size) for r in range(size)]


@pytest.fixture
def who(program):
    return program(WHO)


def test_plain_python_is_a_world_of_one(who, leaves_nothing):
    assert worlds(run(sys.executable, who).stdout) == expected(1)


@pytest.mark.parametrize("size", [1, 2, 4, 16])
def test_godwit_run_makes_a_world(who, size, leaves_nothing):
    done = run(BIN / "godwit", "run", "-n", str(size), who)
    assert done.returncode == 0, done.stderr
    assert worlds(done.stdout) == expected(size)


def test_a_world_of_128_processes_meets(tmp_path, leaves_nothing):
    """In C: 128 interpreters would take a minute on a small machine."""
    include = godwit.get_include()
    lib = Path(godwit.get_pkg_config_dir()).parent
    binary = tmp_path / "meet"
    built = run("cc", "-o", binary, Path(__file__).with_name("meet.c"), f"-I{include}", f"-L{lib}", "-lgodwit",
                f"-Wl,-rpath,{lib}")
    assert built.returncode == 0, built.stderr
    done = run(BIN / "godwit", "run", "-n", "128", binary, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(set(re.findall(r"met (\d+)", done.stdout))) == 128


def test_node_size_cuts_the_machine_into_virtual_nodes(who):
    assert worlds(run(BIN / "godwit", "run", "-n", "5", "--node-size", "2", who).stdout) == expected(5, 2)
    assert worlds(run(BIN / "godwit", "run", "-n", "4", who, GODWIT_NODE_SIZE="1").stdout) == expected(4, 1)


def test_torchrun_makes_a_world(who, leaves_nothing):
    done = run(BIN / "torchrun", "--nproc-per-node", "4", "--master-port", "0", who, timeout=120)
    assert done.returncode == 0, done.stderr
    assert worlds(done.stdout) == expected(4)


def test_torchrun_that_restarts_its_workers_makes_a_new_world(program):
    """At the first attempt one rank fails before it joins; the others are waiting for it."""
    restarting = program("import os, sys\nif os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and os.environ['RANK'] == '1':\n"
                         "    import time; time.sleep(1); sys.exit(1)\n" + WHO)
    done = run(BIN / "torchrun", "--nproc-per-node", "3", "--max-restarts", "1", "--master-port", "0", restarting, timeout=120)
    assert done.returncode == 0, done.stderr
    assert worlds(done.stdout) == expected(3)


SPAWN = """
import multiprocessing
import sys

import godwit

def work(rank, how):
    given = dict(rank=rank if "rank" in how else None, size=4, job="spawn-test" if "job" in how else None)
    me = godwit.init(**given)
    godwit.send((me.rank + 1) % me.size, f"{me.rank}".encode())
    before = int(godwit.recv((me.rank - 1) % me.size))
    print(f"I am {me.rank} of {me.size}, node {me.node} of {me.nodes}, {me.local_rank} of {me.local_size} there, after {before}",
          flush=True)
    godwit.barrier()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    children = [context.Process(target=work, args=(rank, sys.argv[2:])) for rank in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    sys.exit(any(child.exitcode for child in children))
"""


@pytest.mark.parametrize("how", ["rank", "rank job", "", "job"])
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_multiprocessing_makes_a_world(program, method, how, leaves_nothing):
    done = run(sys.executable, program(SPAWN), method, *how.split())
    assert done.returncode == 0, done.stderr
    assert worlds(done.stdout) == expected(4)


def test_two_jobs_at_once_do_not_meet(who):
    both = [subprocess.Popen([BIN / "godwit", "run", "-n", "4", who], env=job_environment(), stdout=subprocess.PIPE, text=True)
            for _ in range(2)]
    for job in both:
        output, _ = job.communicate(timeout=60)
        assert job.returncode == 0
        assert worlds(output) == expected(4)


def test_a_job_that_is_not_complete_says_who_is_missing(who):
    started = time.monotonic()
    done = run(sys.executable, who, GODWIT_JOB="alone", GODWIT_SIZE="3", GODWIT_RANK="1", GODWIT_TIMEOUT="0.5")
    assert time.monotonic() - started < 10
    assert done.returncode != 0
    assert "TimedOut: rank 0 and rank 2 did not join within 0.5 s" in done.stderr


def test_an_mpi_launcher_is_not_mistaken_for_a_world_of_one(who):
    """With the plugin, MPI finds no launcher behind the variable; without, there is no plugin."""
    done = run(sys.executable, who, OMPI_COMM_WORLD_SIZE="4")
    assert done.returncode != 0
    assert "godwit run -n 4" in done.stderr


FORKS = """
import os
import sys
import godwit

me = godwit.init()
godwit.barrier()
child = os.fork()
if child == 0:
    try:
        godwit.barrier()
    except godwit.WrongState as reason:
        print(reason, flush=True)
        try:
            godwit.init()
        except godwit.WrongState:
            sys.exit(7)  # an ordinary end, with the functions registered for it
    sys.exit(1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
godwit.send((me.rank + 1) % me.size, b"still here")
assert godwit.recv((me.rank - 1) % me.size) == b"still here"
godwit.barrier()
"""


def test_a_forked_child_is_refused_and_its_end_harms_nobody(program, leaves_nothing):
    done = run(BIN / "godwit", "run", "-n", "3", program(FORKS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("forked from rank") == 3
