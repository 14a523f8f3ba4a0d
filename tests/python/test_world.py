"""A world of one: joining, talking to oneself, leaving, forking, threads and signals.

Jobs of several processes are in tests/jobs.
"""

import os
import signal
import time

import pytest

import godwit


def test_nobody_has_joined_at_first(program):
    out = program.run("""
        import godwit
        for call in (godwit.world, godwit.barrier, lambda: godwit.send(0, b""), lambda: godwit.recv(0)):
            try:
                call()
            except godwit.WrongState as error:
                print(error)
        godwit.close()
    """)
    lines = out.splitlines()
    assert len(lines) == 4
    assert all("call godwit.init() first" in line for line in lines)


def test_a_process_that_nobody_launched_is_a_world_of_one(program):
    out = program.run("""
        import godwit
        w = godwit.init()
        print(w.rank, w.size, w.node, w.nodes, w.local_rank, w.local_size, w.fabric)
        print(bool(w.reason), w is godwit.world(), w.closed)
        print(repr(w))
    """)
    assert out.splitlines()[:2] == ["0 1 0 1 0 1 shm", "True True False"]
    assert "rank 0 of 1" in out.splitlines()[2]


def test_init_twice_gives_the_same_world(program):
    out = program.run("""
        import godwit
        w = godwit.init()
        print(godwit.init() is w, godwit.init(rank=0, size=1, node_size=1, timeout=300) is w)
    """)
    assert out == "True True\n"


@pytest.mark.parametrize("argument", ["rank=1", "size=2", "job='other'", "timeout=7"])
def test_init_that_contradicts_the_first_one_names_the_argument(program, argument):
    out = program.run(f"""
        import godwit
        w = godwit.init()
        try:
            godwit.init({argument})
        except godwit.WrongState as error:
            print(error)
        print(godwit.world() is w)
    """)
    refusal, same = out.splitlines()
    assert argument in refusal and "already joined" in refusal
    assert same == "True"


def test_threads_that_init_at_once_join_once(program):
    out = program.run("""
        import godwit, threading
        worlds, start = [], threading.Barrier(8)
        def join():
            start.wait()
            worlds.append(godwit.init())
        threads = [threading.Thread(target=join) for _ in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        print(len(worlds), len(set(map(id, worlds))))
    """)
    assert out == "8 1\n"


@pytest.mark.parametrize("arguments, kind, words", [
    ("rank=-1", "OutOfRange", "rank: -1"),
    ("rank=10**30", "OutOfRange", "rank"),
    ("size=0", "OutOfRange", "size: 0"),
    ("size=1.5", "InvalidType", "size: 1.5"),
    ("node_size=0", "OutOfRange", "node_size: 0"),
    ("timeout=0", "InvalidValue", "timeout: 0"),
    ("timeout=float('nan')", "InvalidValue", "timeout: nan"),
    ("timeout='soon'", "InvalidType", "timeout: 'soon'"),
    ("job=3", "InvalidType", "job: 3"),
])
def test_init_refuses_a_bad_argument_by_name(program, arguments, kind, words):
    out = program.run(f"""
        import godwit
        try:
            godwit.init({arguments})
        except godwit.{kind} as error:
            print(error)
    """)
    assert words in out


def test_messages_to_oneself_arrive_whole_and_in_order(program):
    program.run("""
        import array, godwit, os
        godwit.init()
        sent = [b"", b"x", os.urandom(1000), os.urandom(3 << 20)]
        for message in sent:
            godwit.send(0, message)
        for message in sent:
            assert godwit.recv(0) == message
        for message in (bytearray(b"ab"), memoryview(b"ab"), array.array("B", b"ab")):
            godwit.send(0, message)
            received = godwit.recv(0)
            assert received == b"ab" and type(received) is bytes
        godwit.barrier()
    """)


@pytest.mark.parametrize("call, kind, words", [
    ("send(1, b'')", "OutOfRange", "1"),
    ("send(-1, b'')", "OutOfRange", "peer: -1"),
    ("send(2**40, b'')", "OutOfRange", "peer"),
    ("send('0', b'')", "InvalidType", "peer: '0'"),
    ("send(0, 'text')", "InvalidType", "message"),
    ("send(0, [1])", "InvalidType", "message"),
    ("send(0, memoryview(b'abcd')[::2])", "InvalidValue", "message"),
    ("recv(1)", "OutOfRange", "1"),
    ("recv(1.0)", "InvalidType", "peer: 1.0"),
    ("recv(None)", "InvalidType", "peer: None"),
])
def test_a_bad_call_is_refused_by_name_and_changes_nothing(program, call, kind, words):
    out = program.run(f"""
        import godwit
        godwit.init()
        try:
            godwit.{call}
        except godwit.{kind} as error:
            print(error)
        godwit.send(0, b"still fine")
        assert godwit.recv(0) == b"still fine"
    """)
    assert words in out


def test_after_leaving_every_call_says_so(program):
    out = program.run("""
        import godwit
        w = godwit.init()
        godwit.close()
        godwit.finalize()   # twice is fine
        print(w.closed, repr(w))
        for call in (godwit.world, godwit.barrier, lambda: godwit.send(0, b""), lambda: godwit.recv(0),
                     lambda: w.rank, w.barrier):
            try:
                call()
            except godwit.WrongState as error:
                print(error)
    """)
    first, *rest = out.splitlines()
    assert first == "True <godwit.World, closed>"
    assert len(rest) == 6 and all("closed" in line for line in rest)


def test_a_world_of_one_can_be_joined_again(program):
    program.run("""
        import godwit
        for _ in range(3):
            godwit.init()
            godwit.send(0, b"x")
            assert godwit.recv(0) == b"x"
            godwit.close()
    """)


def test_a_world_cannot_be_made_by_hand():
    with pytest.raises(TypeError):
        godwit.World()


def test_a_forked_child_gets_a_clear_error_and_harms_nothing(program):
    out = program.run("""
        import godwit, os, sys
        w = godwit.init()
        godwit.send(0, b"kept")
        child = os.fork()
        if child == 0:
            calls = (godwit.init, godwit.world, godwit.barrier, lambda: godwit.send(0, b""),
                     lambda: godwit.recv(0), w.barrier)
            for call in calls:
                try:
                    call()
                    print("no error from", call)
                except godwit.WrongState as error:
                    assert "fork" in str(error), error
                    print("refused")
            assert w.forked and w.rank == 0  # where the parent stands may be read
            repr(w)
            godwit.close()
            sys.exit(0)     # with exit functions
        assert os.waitpid(child, 0)[1] == 0
        assert godwit.recv(0) == b"kept"
        godwit.barrier()
        print("parent fine")
    """)
    assert out.splitlines() == ["refused"] * 6 + ["parent fine"]


def test_threads_receive_each_message_once(program):
    program.run("""
        import godwit, threading
        godwit.init()
        n, got = 200, []
        def receive():
            for _ in range(n):
                got.append(godwit.recv(0))
        threads = [threading.Thread(target=receive) for _ in range(3)]
        [t.start() for t in threads]
        sent = [bytes([i % 251]) * (i % 97) for i in range(3 * n)]
        for message in sent:
            godwit.send(0, message)
        [t.join() for t in threads]
        assert sorted(got) == sorted(sent)
    """)


def test_close_ends_the_waits_of_other_threads(program):
    out = program.run("""
        import godwit, threading
        w = godwit.init()
        inside = threading.Event()
        def receive():
            inside.set()
            try:
                godwit.recv(0)
            except godwit.WrongState as error:
                print(error)
        thread = threading.Thread(target=receive)
        thread.start()
        inside.wait()
        godwit.close()
        thread.join()
        print(w.closed)
    """)
    refusal, closed = out.splitlines()
    assert "closed" in refusal and closed == "True"


def test_a_daemon_thread_that_waits_does_not_stop_the_exit(program):
    program.run("""
        import godwit, threading
        godwit.init()
        inside = threading.Event()
        def receive():
            inside.set()
            godwit.recv(0)
        threading.Thread(target=receive, daemon=True).start()
        inside.wait()
    """)


def is_asleep(process):
    with open(f"/proc/{process.pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"


def interrupt_when_waiting(process):
    """Ctrl-C once the program has said "ready" and then sleeps: nothing but the wait is left."""
    assert process.stdout.readline() == "ready\n"
    limit = time.monotonic() + 30
    while not is_asleep(process):
        assert time.monotonic() < limit and process.poll() is None
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    out, err = process.communicate(timeout=30)
    return time.monotonic() - start, out, err


def test_ctrl_c_ends_a_wait(program):
    process = program.start("""
        import godwit
        godwit.init()
        print("ready", flush=True)
        godwit.recv(0)
    """)
    seconds, _, err = interrupt_when_waiting(process)
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in err
    assert seconds < 10


def test_the_exception_of_a_signal_handler_wins(program):
    process = program.start("""
        import godwit, signal
        class Enough(Exception): pass
        def handler(*_): raise Enough
        signal.signal(signal.SIGINT, handler)
        godwit.init()
        print("ready", flush=True)
        try:
            godwit.recv(0)
        except Enough:
            godwit.send(0, b"still fine")
            print(godwit.recv(0))
    """)
    _, out, err = interrupt_when_waiting(process)
    assert process.returncode == 0, err
    assert out == "b'still fine'\n"


def test_a_signal_handler_that_raises_nothing_leaves_the_wait_alone(program):
    process = program.start("""
        import godwit, signal
        def handler(*_): godwit.send(0, b"from the handler")
        signal.signal(signal.SIGINT, handler)
        godwit.init()
        print("ready", flush=True)
        print(godwit.recv(0))
    """)
    _, out, err = interrupt_when_waiting(process)
    assert process.returncode == 0, err
    assert out == "b'from the handler'\n"


def test_other_threads_run_while_one_waits(program):
    program.run("""
        import godwit, threading
        godwit.init()
        threading.Timer(0.05, lambda: godwit.send(0, b"late")).start()
        assert godwit.recv(0) == b"late"
    """)


def test_exit_functions_of_the_program_may_still_use_the_job(program):
    out = program.run("""
        import atexit, godwit
        godwit.init()
        atexit.register(lambda: print(godwit.world().size))
    """)
    assert out == "1\n"


def test_a_world_of_one_waits_no_longer_than_its_timeout(program):
    out = program.run("""
        import godwit, time
        godwit.init(timeout=0.3)
        start = time.monotonic()
        try:
            godwit.recv(0)
        except godwit.TimedOut as error:
            print(error)
        assert time.monotonic() - start < 10
    """)
    assert "rank 0" in out.splitlines()[0]
