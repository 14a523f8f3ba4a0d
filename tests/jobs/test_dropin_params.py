"""Programs for AdaPM and Lapse run as they are: their processes find each other, and nobody waits for one that is gone.

    GODWIT_DROPIN_RUNS=100 pytest tests/jobs/test_dropin_params.py -k examples      `make test-dropin`; without it once each
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from processes import BIN, job_environment, run
from test_guide import assert_as_shown, examples

RUNS = int(os.environ.get("GODWIT_DROPIN_RUNS", "1"))
HERE = Path(__file__).parent
RUN = (BIN / "godwit", "run", "--as", "adapm,lapse")

# Nodes of a program that says what node(number) does; the port is told by the caller.
FRAME = """
import array
import multiprocessing
import os
import signal
import sys
import threading
import time

import adapm
import lapse

PORT, NODES, METHOD = sys.argv[1], int(sys.argv[2]), sys.argv[3]
KEYS, LENGTH, THREADS = 90, 2, 1


def variables(role):
    os.environ.update(DMLC_NUM_SERVER=str(NODES), DMLC_ROLE=role, DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=PORT)


def scheduler():
    variables("scheduler")
    adapm.scheduler(KEYS, THREADS)
    say("the scheduler is through")


def open_server(lengths=LENGTH, **more):
    variables("server")
    adapm.setup(KEYS, THREADS, **more)
    return adapm.Server(lengths)


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()


def keys(*which):
    return array.array("q", which)


def ones(n, value=1.0):
    return array.array("f", [value] * n)


def start(target, *arguments):
    process = multiprocessing.get_context(METHOD).Process(target=target, args=arguments)
    process.start()
    return process


def main():
    processes = [start(node, number) for number in range(NODES)] + [start(scheduler)]
    for process in processes:
        process.join()
    say("codes:", *[process.exitcode for process in processes])


"""
MAIN = """

if __name__ == "__main__":
    main()
"""

# What most nodes do: all add to all keys, and see it.
ADDS = """
def add(server):
    kv = adapm.Worker(0, server)
    kv.push(keys(*range(KEYS)), ones(KEYS * LENGTH))
    kv.barrier()
    values = ones(KEYS * LENGTH, 0)
    kv.pull(keys(*range(KEYS)), values)
    assert set(values) == {float(NODES)}, values
    return kv
"""


def port() -> str:
    """Nothing is bound to it; it only tells programs apart."""
    return str(random.randrange(20000, 60000))


@pytest.fixture
def nodes(program):
    """Start a program with `count` nodes; `body` defines node(number)."""
    def start(body: str, count: int = 3, method: str = "fork", at: str | None = None, **environment: str) -> subprocess.Popen[str]:
        path = program(FRAME + ADDS + body + MAIN, f"program{random.randrange(10**9)}.py")
        return subprocess.Popen([*map(str, RUN), str(path), at or port(), str(count), method], text=True,
                                env=job_environment() | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return start


def ended(process: subprocess.Popen[str], timeout: float = 60) -> tuple[str, str]:
    try:
        return process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"it hangs\n{out}\n{err}") from None


def codes(out: str) -> list[int]:
    """Exit codes of the nodes, and last that of the scheduler."""
    return [int(code) for code in re.search(r"codes: (.*)", out)[1].split()]


def assert_well(process: subprocess.Popen[str], count: int = 3) -> str:
    out, err = ended(process)
    assert codes(out) == [0] * (count + 1) and err == "", out + err
    assert "the scheduler is through" in out
    return out


# ---- the examples -------------------------------------------------------------------------------


@pytest.mark.timeout(60 + 60 * RUNS)
@pytest.mark.parametrize("name", ["adapm", "lapse"])
def test_examples_as_those_projects_show_run_as_they_are(name, leaves_nothing):
    for turn in range(RUNS):
        done = run(*RUN, HERE / f"{name}_program.py", port(), *(["spawn"] if turn % 20 == 19 else []), timeout=120,
                   GODWIT_TIMEOUT="60")
        told = re.findall(r"a worker of node (\d): (\d+) comparisons, 0 wrong", done.stdout)
        assert sorted(int(node) for node, _ in told) == [0, 0, 1, 1, 2, 2, 3, 3], f"run {turn + 1}\n{done.stdout}{done.stderr}"
        assert (done.returncode, done.stderr) == (0, ""), f"run {turn + 1}\n{done.stdout}{done.stderr}"
        if RUNS > 20 and (turn + 1) % 10 == 0:
            print(f"{name}: {turn + 1} of {RUNS} runs", flush=True)


# ---- finding each other ----------------------------------------------------------------------------


PLAIN = """
def node(number):
    server = open_server()
    say("rank", server.my_rank())
    add(server).finalize()
    server.shutdown()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_nodes_get_ranks_and_are_nodes_of_their_own(nodes, method, leaves_nothing):
    out = assert_well(nodes("""
def node(number):
    import godwit
    server = open_server()
    world = godwit.world()
    say("rank", server.my_rank(), world.rank, world.node, world.nodes, world.size, world.local_size)
    add(server).finalize()
    server.shutdown()
""", method=method))
    assert sorted(re.findall("rank (.*)", out)) == [f"{rank} {rank} {rank} 3 3 1" for rank in range(3)]


def test_one_node_alone(nodes):
    assert_well(nodes(PLAIN, count=1), count=1)


def test_the_next_program_may_have_the_same_port_and_others_run_at_the_same_time(nodes, leaves_nothing):
    same = port()
    for _ in range(3):
        assert_well(nodes(PLAIN, at=same))
    for process in [nodes(PLAIN) for _ in range(2)]:
        assert_well(process)


def test_a_scheduler_that_comes_late_is_waited_for_and_still_ends(nodes):
    assert_well(nodes(PLAIN + """
def scheduler(before=scheduler):
    time.sleep(0.5)
    before()
"""))


def test_a_process_can_have_a_server_after_another(nodes):
    out = assert_well(nodes("""
def node(number):
    for round in range(2):
        server = open_server([LENGTH] * KEYS)
        add(server)
        server.shutdown()
        server.shutdown()
        say("round", round)

def scheduler(once=scheduler):
    once()
    once()
"""))
    assert out.count("round 1") == 3


def test_processes_without_multiprocessing_meet_too(program, leaves_nothing):
    """As a tracker starts them: the variables are all that they have in common."""
    path = program("""
import os, sys
import adapm
if os.environ["DMLC_ROLE"] == "scheduler":
    adapm.scheduler(10, 1)
else:
    adapm.setup(10, 1)
    server = adapm.Server(1)
    adapm.Worker(0, server).barrier()
    sys.stdout.write(f"rank {server.my_rank()}\\n")
""")
    told = job_environment() | {"DMLC_NUM_SERVER": "2", "DMLC_PS_ROOT_URI": "localhost", "DMLC_PS_ROOT_PORT": port()}
    processes = [subprocess.Popen([*map(str, RUN), str(path)], env=told | {"DMLC_ROLE": role}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for role in ("server", "server", "scheduler")]
    texts = [ended(process) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], texts
    assert sorted(out for out, _ in texts) == ["", "rank 0\n", "rank 1\n"]


# ---- what programs may do ----------------------------------------------------------------------------


def test_keys_move_and_are_copied(nodes):
    out = assert_well(nodes("""
def node(number):
    server = open_server()
    kv = adapm.Worker(0, server)
    for clock in range(20):
        kv.intent(keys(1, 2, 10 + server.my_rank()), clock, clock + 3)
        kv.push(keys(1, 2, 10 + server.my_rank()), ones(6))
        kv.wait_sync()
        kv.advance_clock()
    kv.barrier()
    stats = server._kv.stats(total=True)
    say("moves", stats["moves"] > 0, "copies", stats["grants"] > 0)
    kv.finalize()
    server.shutdown()
"""))
    assert out.count("moves True copies True") == 3


@pytest.mark.parametrize("technique, expected", [("replication_only", "moves False copies True"),
                                                 ("relocation_only", "moves True copies False")])
def test_a_technique_can_be_chosen(nodes, technique, expected):
    out = assert_well(nodes(f"""
def node(number):
    server = open_server(use_techniques="{technique}")
    kv = adapm.Worker(0, server)
    for clock in range(10):
        kv.intent(keys(1, 2, 3), clock, clock + 2)
        kv.wait_sync()
        kv.advance_clock()
    kv.barrier()
    stats = server._kv.stats(total=True)
    say("moves", stats["moves"] > 0, "copies", stats["grants"] > 0)
    server.shutdown()
"""))
    assert out.count(expected) == 3


def test_localize_brings_keys_here(nodes):
    assert_well(nodes("""
def node(number):
    variables("server")
    lapse.setup(KEYS, THREADS)
    server = lapse.Server(KEYS, LENGTH)
    kv = lapse.Worker(0, 1, server)
    mine = keys(*range(server.my_rank(), KEYS, NODES))
    kv.localize(mine)
    assert all(server._natives[1].is_local(mine))
    kv.wait(kv.localize(mine.tolist(), True))
    server.shutdown()
"""))


@pytest.mark.parametrize("scheme", ["naive", "preloc", "pool", "local"])
def test_samples_may_meet_a_longer_vector(nodes, scheme):
    """Then there may be more of it than room; what there is room for is there."""
    process = nodes(f"""
def node(number):
    lengths = [LENGTH] * KEYS
    lengths[5] = 6
    server = open_server(lengths)
    server.enable_sampling_support("{scheme}", True, "uniform", 0, 10)
    kv = adapm.Worker(0, server)
    if server.my_rank() == 0:
        for key in range(10):
            kv.set(keys(key), ones(lengths[key], key))
    kv.barrier()
    for turn in range(30):
        drawn, values = keys(-1, -1), ones(5, -1)
        kv.pull_sample(kv.prepare_sample(2, kv.current_clock()), drawn, values, turn % 2 == 0)
        assert values.tolist() == ([key for key in drawn for _ in range(lengths[key])] + [-1])[:5], (drawn, values)
        kv.advance_clock()
    kv.finalize()
    server.shutdown()
""", count=2)
    out, err = ended(process)
    assert codes(out) == [0, 0, 0], out + err
    for line in err.splitlines():
        assert "are left out" in line or line.startswith("  "), err


def test_nobody_needs_to_finalize_or_to_shut_down(nodes):
    """A process that is through serves its keys until the others are."""
    assert_well(nodes("""
def node(number):
    server = open_server()
    if server.my_rank() == 0:
        adapm.Worker(0, server)
        return
    kv = adapm.Worker(0, server)
    for _ in range(10):
        kv.push(keys(*range(KEYS)), ones(KEYS * LENGTH))
        kv.barrier()
        time.sleep(0.03)
    if server.my_rank() == 1:
        sys.exit(0)
    threading.Thread(target=lambda: (time.sleep(0.5), kv.pull(keys(*range(KEYS)), ones(KEYS * LENGTH)))).start()
"""))


def test_who_is_through_waits_longer_than_the_time_limit(nodes):
    assert_well(nodes("""
def node(number):
    server = open_server()
    kv = adapm.Worker(0, server)
    if server.my_rank() == 1:
        for _ in range(5):
            time.sleep(0.25)
            kv.pull(keys(*range(KEYS)), ones(KEYS * LENGTH))
    server.shutdown()
""", GODWIT_TIMEOUT="0.5"))


# ---- ends that are not good ----------------------------------------------------------------------------


def assert_named(err: str, rank: str, at_least: int) -> None:
    """The errors of those that are left say whose end it was."""
    said = re.findall(rf"RankLost: rank {rank} \(process \d+\) died", err)
    assert len(said) >= at_least, err


def test_a_server_that_is_killed_ends_the_others_with_its_name(nodes, leaves_nothing):
    process = nodes("""
def node(number):
    server = open_server()
    kv = adapm.Worker(0, server)
    kv.barrier()
    if server.my_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if server.my_rank() == 0:
        kv.barrier()
    server.shutdown()
""")
    started = time.monotonic()
    out, err = ended(process)
    assert time.monotonic() - started < 20
    assert sorted(codes(out)) == [-signal.SIGKILL, 1, 1, 1]
    assert_named(err, "1", 3)
    assert "the scheduler is rank 3" in err


def test_a_server_that_fails_ends_the_others(nodes, leaves_nothing):
    """Also where its own thread waits for them."""
    process = nodes("""
def node(number):
    server = open_server()
    kv = adapm.Worker(0, server)
    thread = threading.Thread(target=kv.barrier)
    kv.pull(keys(1), ones(2))
    if server.my_rank() == 2:
        raise ValueError("no more today")
    thread.start()
    thread.join()
    server.shutdown()
""")
    out, err = ended(process)
    assert codes(out) == [1, 1, 1, 1]
    assert "no more today" in err
    assert len(re.findall(r"RankLost: rank 2 has left", err)) >= 3


def test_a_scheduler_that_is_killed_is_noticed_at_the_end(nodes, leaves_nothing):
    process = nodes(PLAIN + """
def scheduler():
    variables("scheduler")
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
    adapm.scheduler(KEYS, THREADS)

def node(number, before=node):
    server = open_server()
    add(server)
    time.sleep(0.6)
    server.shutdown()
""")
    out, err = ended(process)
    assert codes(out) == [1, 1, 1, -signal.SIGKILL]
    assert_named(err, "3", 3)
    assert "the scheduler is rank 3" in err


# Where node 1 ends while all come together, as what is called in its place.
POINTS = {
    "before the room is open": ("Meeting", "open_room", "die"),
    "when the others are in the room": ("Meeting", "open_room", "lambda self: (self.hall.recv(self.told.scheduler), time.sleep(0.3), die())"),
    "before it opens parameters": ("Parameters", None, "lambda *arguments: (time.sleep(0.2), die())"),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_server_that_is_killed_while_all_come_together_is_not_waited_for(nodes, point, leaves_nothing):
    holder, name, instead = POINTS[point]
    where = f"keyed.meeting.{holder}.{name}" if name else f"keyed.{holder}"
    process = nodes(f"""
def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

def node(number):
    from godwit.dropin import keyed
    if number == 1:
        {where} = {instead}
    server = open_server()
    add(server)
    server.shutdown()
""", GODWIT_TIMEOUT="50")
    out, err = ended(process, timeout=20)
    assert codes(out) == [1, -signal.SIGKILL, 1, 1], out + err
    assert_named(err, r"\d", 3)


def test_a_server_that_never_comes_is_waited_for_until_the_time_limit(nodes):
    process = nodes("""
def node(number):
    if number != 1:
        open_server()
""", GODWIT_TIMEOUT="0.5")
    out, err = ended(process, timeout=20)
    assert codes(out) == [1, 0, 1, 1]
    assert "1 of 4 processes did not join within 0.5 s" in err


@pytest.mark.parametrize("late", [0, 1])
def test_what_is_left_of_a_killed_program_does_not_join_the_next(nodes, late, leaves_nothing):
    """Its children still wait for a node when their parent is killed, or have not yet begun."""
    same = port()
    first = nodes(f"""
def main():
    for number in range(NODES - 1):
        start(node, number)
    start(scheduler)
    time.sleep(60)

def variables(role, before=variables):
    before(role)
    say("begins to meet")
    time.sleep({late})
""" + PLAIN, at=same, GODWIT_TIMEOUT="50")
    for _ in range(3):
        assert first.stdout.readline() == "begins to meet\n"
    time.sleep(0.3 * (not late))
    first.kill()
    _, err = first.communicate(timeout=20)
    assert re.search("ended before this one began to meet" if late else "ended while this process was joining|ended before", err)
    assert_well(nodes(PLAIN, at=same))


def test_who_is_missing_is_said(nodes):
    process = nodes(PLAIN + """
def main():
    processes = [start(node, 0), start(scheduler)]
    for process in processes:
        process.join()
    say("codes:", *[process.exitcode for process in processes])
""", GODWIT_TIMEOUT="0.5")
    out, err = ended(process)
    assert codes(out) == [1, 1]
    assert re.search(r"TimedOut: 2 of 4 processes did not join within 0.5 s", err)
    assert "that 3 servers and a scheduler meet at port" in err


def test_two_schedulers_at_a_port_are_one_too_many(nodes):
    process = nodes(PLAIN + """
def main():
    processes = [start(scheduler), start(scheduler)]
    time.sleep(0.5)
    processes.append(start(node, 0))
    for process in processes:
        process.join()
    say("codes:", *[process.exitcode for process in processes])
""", count=1, GODWIT_TIMEOUT="5")
    out, err = ended(process)
    assert sorted(codes(out)) == [0, 0, 1], out + err
    assert re.search(r"RanksDisagree: rank 1 .* was refused: rank 1 has joined already.*another program", err)


def test_nodes_that_say_different_things_are_told_so(nodes):
    process = nodes("""
def node(number):
    global LENGTH
    server = open_server(2 + (number == 0))
""")
    out, err = ended(process)
    assert codes(out)[:3] == [1, 1, 1]
    assert "RanksDisagree" in err


# ---- the page ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", examples("docs/dropin.md"), ids=lambda example: example.name)
def test_a_program_of_the_page_does_what_is_shown(example, program):
    path = program(example.text, example.name)
    assert_as_shown(example, run(BIN / "godwit", *[str(path) if word == example.name else word for word in example.command[1:]]))


def test_the_page_tells_of_every_name():
    """Of those that the modules have, without a look at how they are called."""
    from godwit.dropin import adapm, lapse

    text = (HERE.parents[1] / "docs" / "dropin.md").read_text()
    for name in {name for kind in (adapm.Server, adapm.Worker, lapse.Worker) for name in dir(kind) if not name.startswith("_")}:
        assert re.search(rf"\b{name}\b", text), name
