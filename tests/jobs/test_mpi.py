"""Jobs that an MPI launcher starts, with Open MPI and with MPICH: the right world, messages, refusals, endings."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import BIN, job_environment, run
from test_joining import WHO, expected, worlds

BUILD = Path(__file__).resolve().parents[2] / "build"
LAUNCHERS = {
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
    "mpich": ["mpirun.mpich"],
}
OTHER = {"openmpi": "mpich", "mpich": "openmpi"}
NAMES = {"openmpi": "Open MPI", "mpich": "MPICH"}


@pytest.fixture(params=["openmpi", "mpich"])
def mpi(request):
    if shutil.which(LAUNCHERS[request.param][0]) is None:
        pytest.skip(f"{NAMES[request.param]} is not installed")
    return request.param


@pytest.fixture
def who(program):
    return program(WHO)


def mpirun(mpi: str, n: int, *argv: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return run(*LAUNCHERS[mpi], "-n", str(n), *argv, **environment)


def mpi4py_path(mpi: str) -> str:
    """The directory of an mpi4py for this MPI, as tools/setup.sh builds it."""
    path = BUILD / f"mpi4py-{mpi}"
    if not (path / "mpi4py").is_dir():
        pytest.skip(f"mpi4py could not be built for {NAMES[mpi]}")
    return os.pathsep.join(part for part in (os.environ.get("PYTHONPATH"), str(path)) if part)


# ---- the right world -------------------------------------------------------------


@pytest.mark.parametrize("node_size", [None, 1, 2])
def test_mpirun_makes_a_world(mpi, who, node_size, leaves_nothing):
    environment = {"GODWIT_NODE_SIZE": str(node_size)} if node_size else {}
    done = mpirun(mpi, 4, sys.executable, who, **environment)
    assert done.returncode == 0, done.stderr
    assert worlds(done.stdout) == expected(4, node_size)
    assert done.stderr == ""


def test_mpirun_of_godwit_run_is_the_same_as_without(mpi, who):
    done = mpirun(mpi, 4, BIN / "godwit", "run", "--node-size", "2", who)
    assert done.returncode == 0, done.stderr
    assert worlds(done.stdout) == expected(4, 2)


def test_mpirun_of_one_process_is_a_world_of_one(mpi, who):
    assert worlds(mpirun(mpi, 1, sys.executable, who).stdout) == expected(1)


@pytest.mark.parametrize("node_size", ["4", "1"])
def test_an_mpi_that_mpi4py_started_is_joined(mpi, program, node_size):
    joined = program("from mpi4py import MPI\n" + WHO + """
assert MPI.COMM_WORLD.Get_rank() == me.rank and MPI.COMM_WORLD.Get_size() == me.size
assert me.fabric == "mpi" and "runs in this process" in me.reason
assert MPI.COMM_WORLD.allreduce(1) == me.size
""")
    done = mpirun(mpi, 4, sys.executable, joined, PYTHONPATH=mpi4py_path(mpi), GODWIT_NODE_SIZE=node_size)
    assert done.returncode == 0, done.stderr
    assert worlds(done.stdout) == expected(4, int(node_size))
    assert done.stderr == ""


def test_mpi4py_without_a_launcher_is_a_world_of_one(mpi, program):
    alone = program("from mpi4py import MPI\n" + WHO)
    done = run(sys.executable, alone, PYTHONPATH=mpi4py_path(mpi))
    assert done.returncode == 0, done.stderr
    assert worlds(done.stdout) == expected(1)


def test_a_world_can_be_left_and_joined_again(mpi, program):
    again = program("import godwit\ngodwit.init()\ngodwit.send((godwit.world().rank + 1) % 3, b'never received')\n"
                    "godwit.barrier()\ngodwit.close()\n" + WHO)
    done = mpirun(mpi, 3, sys.executable, again, GODWIT_NODE_SIZE="1")
    assert done.returncode == 0, done.stderr
    assert worlds(done.stdout) == expected(3, 1)


@pytest.mark.parametrize("inner", ["openmpi", "mpich"])
def test_of_nested_launchers_the_inner_one_counts(inner, who):
    outer = OTHER[inner]
    for kind in (inner, outer):
        if shutil.which(LAUNCHERS[kind][0]) is None:
            pytest.skip(f"{NAMES[kind]} is not installed")
    # What is left of the outer one inside: its variables.
    variables = {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "1"} if outer == "openmpi" else {
        "PMI_SIZE": "3", "PMI_RANK": "1"}
    told = [f"{name}={value}" for name, value in variables.items()]
    done = mpirun(inner, 2, "env", *told, sys.executable, who)
    assert done.returncode == 0, done.stderr
    assert worlds(done.stdout) == expected(2)


# ---- several machines, which are this one under two names ---------------------------


def elsewhere() -> list[str]:
    """A command that runs the rest as if on a machine of another name."""
    words = ["unshare", "--uts", "--", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh"]
    if subprocess.run([*words, "true"], capture_output=True).returncode != 0:
        pytest.skip("a process cannot have a host name of its own here")
    return words


def two_hosts(mpi: str, program: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Ranks 0, 1, 3 and 4 are here, 2 and 5 elsewhere."""
    one, there = [sys.executable, str(program)], elsewhere()
    parts = [("2", one), ("1", [*there, *one]), ("2", one), ("1", [*there, *one])]
    argv = [word for n, words in parts for word in (":", "-n", n, *words)]
    return run(*LAUNCHERS[mpi], *argv[1:], **environment)


def test_ranks_of_several_hosts_make_a_world_and_nodes_stay_on_their_host(mpi, who, leaves_nothing):
    done = two_hosts(mpi, who)
    assert done.returncode == 0, done.stderr
    assert [world[2:6] for world in worlds(done.stdout)] == [
        (0, 2, 0, 4), (0, 2, 1, 4), (1, 2, 0, 2), (0, 2, 2, 4), (0, 2, 3, 4), (1, 2, 1, 2)]
    done = two_hosts(mpi, who, GODWIT_NODE_SIZE="3")
    assert [world[2:6] for world in worlds(done.stdout)] == [
        (0, 3, 0, 3), (0, 3, 1, 3), (2, 3, 0, 2), (0, 3, 2, 3), (1, 3, 0, 1), (2, 3, 1, 2)]


def test_a_barrier_over_several_hosts_names_the_missing_host(mpi, program):
    late = program("""
import sys, time
import godwit
me = godwit.init(timeout=1)
godwit.barrier()
if me.rank == 5:
    time.sleep(3)
else:
    try:
        godwit.barrier()
    except godwit.TimedOut as reason:
        sys.stdout.write(f"{me.rank} {str(reason).splitlines()[0]}\\n")
godwit.barrier()
""")
    done = two_hosts(mpi, late)
    said = dict(re.findall(r"(\d) (.*) did not come", done.stdout))
    assert set(said) == set("01234"), done.stdout + done.stderr
    assert said["2"] == "rank 5"
    assert all(said[rank] == "rank 2 and rank 5" for rank in "0134")


def test_a_rank_that_left_is_known_on_other_hosts(mpi, program):
    leaver = program("""
import sys
import godwit
me = godwit.init(timeout=20)
godwit.barrier()
if me.rank == 2:
    for other in (0, 5):
        godwit.send(other, b"last words" * 100000)
    godwit.close()
elif me.rank in (0, 5):
    assert godwit.recv(2) == b"last words" * 100000
    try:
        godwit.recv(2)
    except godwit.RankLost as reason:
        sys.stdout.write(f"{me.rank} {reason}\\n")
""")
    done = two_hosts(mpi, leaver)
    assert done.returncode == 0, done.stderr
    for rank in (0, 5):
        assert f"{rank} rank 2 has left the job" in done.stdout


# ---- messages --------------------------------------------------------------------------


LOAD = """
import sys
import godwit

me = godwit.init()
n = int(sys.argv[1])

def message(source, to):
    return bytes([(7 * source + 13 * to + 1) % 256]) * n

for other in range(me.size):  # everybody sends before anybody receives
    godwit.send(other, message(me.rank, other))
for other in range(me.size):
    assert godwit.recv(other) == message(other, me.rank)
godwit.barrier()
if me.rank == 0:
    print("all well", flush=True)
"""


@pytest.mark.parametrize("n_bytes", [0, 10, 5000, 300_000, 64 << 20])
@pytest.mark.parametrize("node_size", ["1", "2"])
def test_everybody_may_send_before_anybody_receives(mpi, program, n_bytes, node_size):
    n = 2 if n_bytes >= 64 << 20 else 4
    done = mpirun(mpi, n, sys.executable, program(LOAD), str(n_bytes), GODWIT_NODE_SIZE=node_size)
    assert done.returncode == 0, done.stderr
    assert "all well" in done.stdout


def test_what_was_sent_arrives_while_the_sender_does_something_else(mpi, program):
    """MPI works only while it is called, so nothing may be left to do for it when send returns."""
    sender = program("""
import time
import godwit

me = godwit.init()
godwit.barrier()
if me.rank == 0:
    for i in range(300):
        godwit.send(1, b"%d" % i)
    godwit.send(1, bytes(1 << 20))
    time.sleep(3)
else:
    began = time.monotonic()
    for i in range(300):
        assert godwit.recv(0) == b"%d" % i
    assert len(godwit.recv(0)) == 1 << 20
    assert time.monotonic() - began < 2
    print("in time", flush=True)
""")
    done = mpirun(mpi, 2, sys.executable, sender, GODWIT_NODE_SIZE="1")
    assert "in time" in done.stdout, done.stderr


# ---- refusals --------------------------------------------------------------------------


def test_an_mpi4py_for_the_wrong_mpi_is_refused_with_what_to_do(mpi, program):
    wrong = OTHER[mpi]
    path = mpi4py_path(wrong)
    loads = program("import mpi4py\nmpi4py.rc.initialize = False\nfrom mpi4py import MPI\n" + WHO)
    done = mpirun(mpi, 2, sys.executable, loads, PYTHONPATH=path)
    assert done.returncode != 0
    assert f"{NAMES[mpi]}'s launcher started this process" in done.stderr
    assert f"start the job with the mpirun of {NAMES[wrong]}" in done.stderr


def test_an_mpi_for_calls_of_one_thread_only_is_refused(mpi, program):
    single = program("import mpi4py\nmpi4py.rc.thread_level = 'single'\nfrom mpi4py import MPI\n" + WHO)
    done = mpirun(mpi, 2, sys.executable, single, PYTHONPATH=mpi4py_path(mpi))
    assert done.returncode != 0
    assert "MPI_THREAD_MULTIPLE" in done.stderr


def test_a_launcher_that_is_not_of_this_mpi_is_refused(mpi, who):
    """The variables are there, but MPI finds nobody behind them."""
    variables = {"openmpi": {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"},
                 "mpich": {"PMI_SIZE": "4", "PMI_RANK": "0"}}[mpi]
    done = run(sys.executable, who, **variables)
    assert done.returncode != 0
    assert "found 1" in done.stderr and "godwit run -n 4" in done.stderr


def test_an_mpi_without_plugin_is_refused(mpi, who, tmp_path):
    done = mpirun(mpi, 2, sys.executable, who, GODWIT_PLUGINS=str(tmp_path))
    assert done.returncode != 0
    assert f"godwit-{mpi}.so" in done.stderr and "godwit run -n 2" in done.stderr


def test_ranks_that_disagree_on_the_node_size_are_told(mpi, program):
    disagree = program("import os\nrank = os.environ.get('OMPI_COMM_WORLD_RANK') or os.environ['PMI_RANK']\n"
                       "os.environ['GODWIT_NODE_SIZE'] = str(1 + int(rank))\n" + WHO)
    done = mpirun(mpi, 2, sys.executable, disagree)
    assert done.returncode != 0
    assert "give all the same GODWIT_NODE_SIZE" in done.stderr


# ---- endings ---------------------------------------------------------------------------


@pytest.mark.parametrize("node_size", ["2", "1"])
@pytest.mark.parametrize("end", ["sys.exit(3)", "os.kill(os.getpid(), 9)"])
def test_the_end_of_a_rank_ends_the_job(mpi, program, end, node_size):
    ends = program("import os, sys, time\nimport godwit\nme = godwit.init()\ngodwit.barrier()\n"
                   f"if me.rank == 1:\n    time.sleep(0.3)\n    {end}\ngodwit.recv(1)\n")
    began = time.monotonic()
    done = mpirun(mpi, 2, sys.executable, ends, GODWIT_NODE_SIZE=node_size)
    assert done.returncode != 0
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("node_size", ["2", "1"])
def test_ctrl_c_ends_a_job_that_waits(mpi, program, node_size):
    waits = program("import godwit\nme = godwit.init()\ngodwit.barrier()\nprint('ready\\n', end='', flush=True)\ngodwit.recv(1 - me.rank)\n")
    job = subprocess.Popen([*LAUNCHERS[mpi], "-n", "2", sys.executable, str(waits)], text=True, start_new_session=True,
                           env=job_environment() | {"GODWIT_NODE_SIZE": node_size}, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
    assert job.stdout.readline() == "ready\n"
    began = time.monotonic()
    os.killpg(job.pid, signal.SIGINT)
    job.communicate(timeout=20)
    assert time.monotonic() - began < 5
    if mpi == "openmpi":  # MPICH's mpirun ends with 0
        assert job.returncode != 0


IDLE = """
import sys
import time
import godwit

me = godwit.init()
godwit.barrier()
time.sleep(0.5)
began, used = time.monotonic(), time.process_time()
if me.rank == 0:
    time.sleep(6)
    for other in range(1, me.size):
        godwit.send(other, b"go on")
else:
    godwit.recv(0)
sys.stdout.write(f"used {(time.process_time() - used) / (time.monotonic() - began)}\\n")
"""


@pytest.mark.parametrize("node_size", ["4", "1"])
def test_an_idle_job_takes_hardly_any_processor_time(mpi, program, node_size, record_property, capsys):
    done = mpirun(mpi, 4, sys.executable, program(IDLE), GODWIT_NODE_SIZE=node_size)
    shares = [float(share) for share in re.findall(r"used (\S+)", done.stdout)]
    with capsys.disabled():
        print(f"{NAMES[mpi]}, {4 // int(node_size)} node(s), 4 idle ranks: {100 * sum(shares):.2f} % of a core")
    record_property("idle share of a core", sum(shares))
    assert len(shares) == 4, done.stderr
    assert sum(shares) < 0.02
