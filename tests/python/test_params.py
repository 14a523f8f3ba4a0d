"""godwit.Parameters in a world of one: what calls mean, what they refuse, threads, endings; and the checks of tests/jobs
as a job of one and of two.

These run with every PyTorch at hand, the newest and Debian's.  Most tests share the world that this process joins; those
about leaving it run programs of their own.  Random calls are in test_params_random.py, jobs in tests/jobs.
"""

import array
import gc
import inspect
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import godwit

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def world():
    godwit.init()
    yield
    godwit.close()


@pytest.fixture
def kv():
    """Ten keys with vectors of length 4."""
    with godwit.Parameters(10, 4) as opened:
        yield opened


@pytest.fixture
def w(kv):
    with kv.worker() as worker:
        yield worker


def pulled(w, keys, n):
    values = torch.full((n,), -1.0)
    assert w.pull(torch.tensor(keys), values) == -1
    return values.tolist()


# ---- meaning -------------------------------------------------------------------------------------


def test_all_vectors_are_zero_at_first(w):
    values = torch.ones(10, 4)
    assert w.pull(torch.arange(10), values) == -1
    assert not values.any()


def test_push_adds_and_set_assigns(w):
    keys = torch.tensor([2, 7])
    assert w.push(keys, torch.ones(2, 4)) == -1
    assert w.push(keys, torch.full((2, 4), 0.5)) == -1
    assert pulled(w, [7, 2], 8) == [1.5] * 8
    assert w.set(torch.tensor([7]), torch.arange(4.0)) == -1
    assert pulled(w, [2, 7], 8) == [1.5] * 4 + [0, 1, 2, 3]


def test_of_a_key_given_twice_pull_fills_both_push_adds_both_and_set_keeps_the_last(w):
    twice = torch.tensor([3, 5, 3])
    w.push(twice, torch.tensor([1.0, 2, 4]).repeat_interleave(4))
    assert pulled(w, [3, 5, 3], 12) == [5.0] * 4 + [2.0] * 4 + [5.0] * 4
    w.set(twice, torch.tensor([1.0, 2, 4]).repeat_interleave(4))
    assert pulled(w, [3, 5, 3], 12) == [4.0] * 4 + [2.0] * 4 + [4.0] * 4


def test_values_lie_one_after_the_other_in_the_order_of_keys_whatever_the_lengths():
    lengths = [3, 1, 5, 1, 2]
    with godwit.Parameters(5, lengths, "float64") as kv, kv.worker() as w:
        assert [kv.length(key) for key in range(5)] == lengths
        w.set(np.array([2, 0, 4]), np.arange(10.0))
        got = np.empty(9)
        w.pull(np.array([4, 2, 3, 1]), got)
        assert got.tolist() == [8, 9, 0, 1, 2, 3, 4, 0, 0]


def test_float64_keeps_what_float32_would_lose():
    with godwit.Parameters(1, 2, dtype="float64") as kv, kv.worker() as w:
        w.push(torch.tensor([0]), torch.tensor([1.0, 1e-12], dtype=torch.float64))
        w.push(torch.tensor([0]), torch.tensor([1e-12, 1.0], dtype=torch.float64))
        got = np.empty(2)
        w.pull(np.array([0]), got)
        assert got.tolist() == [1 + 1e-12, 1 + 1e-12]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_keys_and_values_may_have_any_shape(w, shape):
    key = torch.full(shape, 6)
    for values in (torch.empty(4), torch.empty(2, 2), torch.empty(1, 4, 1), np.empty((4, 1), np.float32)):
        w.set(key, torch.arange(4.0).reshape(2, 2))
        w.pull(key, values)
        assert values.reshape(4).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_tensors_and_arrays_can_be_mixed_and_keys_be_int32(w, kind):
    keys = np.array([[8, 1], [9, 8]], kind)
    w.push(keys, torch.ones(4, 4))
    w.push(torch.from_numpy(keys), np.ones((16,), np.float32))
    values = torch.empty(2, 8)
    w.pull(keys, values)
    assert values.tolist() == [[4.0] * 4 + [2.0] * 4, [2.0] * 4 + [4.0] * 4]


def test_many_keys_of_int32(w):
    keys = torch.arange(10, dtype=torch.int32).repeat(10_000)
    w.push(keys, torch.ones(100_000, 4))
    assert pulled(w, list(range(10)), 40) == [10_000.0] * 40
    assert w.is_local(keys).all()


def test_no_keys_are_fine(w):
    for keys, values in ((torch.empty(0, dtype=torch.int64), torch.empty(0)),
                         (np.empty((0, 3), np.int32), np.empty((2, 0), np.float32))):
        assert w.pull(keys, values) == w.push(keys, values) == w.set(keys, values) == -1
        assert w.is_local(keys).shape == keys.shape


def test_other_holders_of_memory_are_as_good(w):
    values = memoryview(bytearray(16)).cast("f")
    w.set(np.array([1]), np.arange(4, dtype=np.float32))
    w.pull(memoryview(np.array([1])), values)
    assert values.tolist() == [0, 1, 2, 3]
    assert w.is_local(memoryview(np.array([1]))).tolist() == [True]
    assert w.is_local(array.array("q", [1, 2])).tolist() == [True, True]


def test_read_only_updates_and_parameters_of_a_module_can_be_pushed_and_set(w):
    module = torch.nn.Linear(4, 1)
    w.set(torch.tensor([0]), module.weight)
    updates = np.ones(4, np.float32)
    updates.flags.writeable = False
    w.push(np.array([0]), updates)
    assert pulled(w, [0], 4) == (module.weight + 1).flatten().tolist()


def test_arguments_can_be_named(w):
    keys, values = torch.tensor([4]), torch.ones(4)
    assert w.push(updates=values, keys=keys) == -1
    assert w.set(keys, values=2 * values, asynchronous=True) == -1
    assert w.pull(asynchronous=False, values=values, keys=keys) == -1
    assert values.tolist() == [2.0] * 4


def test_calls_that_do_not_wait_are_done_here(w):
    keys, values = torch.tensor([4]), torch.ones(4)
    for ts in (w.push(keys, values, True), w.set(keys, 3 * values, True), w.pull(keys, values, True)):
        assert ts == -1
        w.wait(ts)
    w.wait_all()
    assert values.tolist() == [3.0] * 4


def test_the_clock(w):
    assert w.current_clock == 0
    for _ in range(3):
        w.advance_clock()
    assert w.current_clock == 3


def test_is_local_gives_what_it_was_given(w):
    mine = w.is_local(torch.tensor([[1, 2, 3]], dtype=torch.int32))
    assert torch.equal(mine, torch.tensor([[True, True, True]]))
    theirs = w.is_local(np.array([9, 9]))
    assert isinstance(theirs, np.ndarray) and theirs.dtype == bool and theirs.tolist() == [True, True]


@pytest.mark.parametrize("technique", ["all", "replication", "relocation", "static"])
def test_on_one_node_all_is_local_whatever_is_asked_for(technique):
    with godwit.Parameters(10, 4, technique=technique) as kv, kv.worker() as w:
        w.begin_setup()
        w.set(np.arange(10), np.ones(40, np.float32))
        w.end_setup()
        keys = torch.tensor([4, 2], dtype=torch.int32)
        assert w.localize(keys) == w.localize(keys=keys, asynchronous=True) == -1
        w.intent(keys, 3)
        w.intent(keys=keys, start=w.current_clock, end=10)
        w.intent(np.array([], np.int64), 0)
        w.wait_sync()
        assert w.is_local(torch.arange(10)).all()
        assert pulled(w, [4, 2], 8) == [1.0] * 8


def test_bad_arguments_of_localize_and_intent_are_named(w):
    keys = torch.tensor([4])
    for kind, word, call in ((IndexError, "keys[0] is 10", lambda: w.localize(torch.tensor([10]))),
                             (IndexError, "keys[1] is -1", lambda: w.intent(torch.tensor([1, -1]), 0)),
                             (TypeError, "keys", lambda: w.localize([1, 2])),
                             (TypeError, "asynchronous", lambda: w.localize(keys, np.ones(3))),
                             (TypeError, "start: 1.5", lambda: w.intent(keys, 1.5)),
                             (TypeError, "end: 'x'", lambda: w.intent(keys, 1, "x")),
                             (IndexError, "start", lambda: w.intent(keys, 2**63)),
                             (ValueError, "end is 3", lambda: w.intent(keys, 3, 3)),
                             (ValueError, "end is", lambda: w.intent(keys, 2**63 - 1)),
                             (TypeError, "localize", lambda: w.localize()),
                             (TypeError, "intent", lambda: w.intent(keys)),
                             (TypeError, "clock", lambda: w.intent(keys, 1, clock=3))):
        with pytest.raises(kind) as caught:
            call()
        assert word in str(caught.value)


def test_stats_count_what_this_process_did(kv):
    with kv.worker() as w:
        w.push(torch.arange(3), torch.ones(3, 4))
        w.pull(torch.arange(5), torch.ones(5, 4))
        w.set(torch.arange(2), torch.ones(2, 4))
        w.set(torch.arange(2), torch.ones(2, 4))
    stats = kv.stats()
    assert {name: stats[name] for name in ("keys_pushed", "keys_pulled", "keys_set", "calls")} == {
        "keys_pushed": 3, "keys_pulled": 5, "keys_set": 4, "calls": 4}
    assert stats.pop("local_share") == 1.0 and stats["keys_remote"] == stats["replicas"] == stats["bytes_sent"] == 0
    assert all(isinstance(value, int) for value in stats.values())
    total = kv.stats(total=True)
    assert {name: total[name] for name in stats if not name.endswith("_bytes")} == {
        name: value for name, value in stats.items() if not name.endswith("_bytes")}


# ---- opening -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [3, np.int32(3), torch.tensor(3), [3] * 4, (3, 3, 3, 3), np.full(4, 3),
                                     np.full((2, 2), 3, np.int32), torch.full((4,), 3)], ids=repr)
def test_lengths_are_a_number_or_one_for_each_key(lengths):
    with godwit.Parameters(4, lengths) as kv:
        assert [kv.length(key) for key in range(4)] == [3, 3, 3, 3]
        assert kv.num_keys == 4


@pytest.mark.parametrize("dtype, name", [("float32", "float32"), ("float64", "float64"), (torch.float64, "float64"),
                                         (np.float32, "float32"), (np.dtype("f8"), "float64")], ids=repr)
def test_dtypes_are_known_by_any_name(dtype, name):
    with godwit.Parameters(4, 3, dtype) as kv:
        assert kv.dtype == name


@pytest.mark.parametrize("kind, word, arguments", [
    (godwit.InvalidValue, "num_keys is 0", (0, 1)),
    (godwit.InvalidValue, "num_keys is -3", (-3, 1)),
    (godwit.InvalidType, "num_keys: 'a'", ("a", 1)),
    (godwit.OutOfRange, "num_keys", (10**30, 1)),
    (godwit.InvalidValue, "lengths is 0", (10, 0)),
    (godwit.InvalidValue, "lengths[7] is -1", (10, [1] * 7 + [-1] * 3)),
    (godwit.InvalidValue, "lengths has 9 entries", (10, [1] * 9)),
    (godwit.InvalidValue, "lengths: it has 1 entry", (10, [1])),
    (godwit.InvalidValue, "lengths has 0 entries", (10, [])),
    (godwit.InvalidType, "lengths[1]: 2.0", (3, [1, 2.0, 3])),
    (godwit.InvalidType, "lengths: 1.5", (3, 1.5)),
    (godwit.InvalidType, "lengths: None", (3, None)),
    (godwit.InvalidType, "lengths: its entries are float64", (3, np.ones(3))),
    (godwit.InvalidValue, "lengths: it is not contiguous", (3, np.ones(6, int)[::2])),
    (godwit.InvalidType, "dtype: 'float16'", (3, 1, "float16")),
    (godwit.InvalidType, "dtype: torch.int64", (3, 1, torch.int64)),
    (godwit.InvalidType, "dtype: None", (3, 1, None)),
    (godwit.InvalidValue, "workers is 0", (3, 1, "float32", 0)),
    (godwit.InvalidValue, "workers", (3, 1, "float32", 2**40)),
    (godwit.InvalidType, "workers: 1.0", (3, 1, "float32", 1.0)),
    (godwit.InvalidValue, "technique: 'adaptive'", (3, 1, "float32", 1, "adaptive")),
    (godwit.InvalidType, "technique: 0", (3, 1, "float32", 1, 0)),
    (godwit.OutOfMemory, "memory", (4 * 10**9, 2**31)),
], ids=str)
def test_bad_arguments_of_parameters_are_named(kind, word, arguments):
    with pytest.raises(kind) as caught:
        godwit.Parameters(*arguments)
    assert word in str(caught.value)


def test_wrong_signatures_are_type_errors(kv, w):
    keys, values = torch.tensor([4]), torch.ones(4)
    for call in (lambda: godwit.Parameters(), lambda: godwit.Parameters(1), lambda: godwit.Parameters(1, 1, size=2),
                 lambda: w.pull(), lambda: w.pull(keys), lambda: w.push(keys, values=values), lambda: w.wait(),
                 lambda: w.set(keys, values, True, 1), lambda: w.pull(keys, values, keys=keys), lambda: godwit.Worker(),
                 lambda: w.pull(keys, values, np.ones(3)), lambda: pickle.dumps(kv), lambda: pickle.dumps(w)):
        with pytest.raises(TypeError):
            call()
    assert pulled(w, [4], 4) == [0.0] * 4


def test_a_process_has_as_many_workers_as_it_said():
    with godwit.Parameters(2, 1, workers=2) as kv:
        first = kv.worker()
        kv.worker().close()
        with pytest.raises(godwit.WrongState, match="workers=3"):
            kv.worker()
        assert not first.closed


# ---- refusals; those of arrays are in test_params_random.py --------------------------------------


def test_a_key_out_of_range_has_no_length(kv):
    for key, kind in ((10, godwit.OutOfRange), (-1, godwit.OutOfRange), (2**70, godwit.OutOfRange),
                      ("a", godwit.InvalidType), (1.0, godwit.InvalidType)):
        with pytest.raises(kind, match="key"):
            kv.length(key)


def test_a_ticket_that_was_not_given_is_refused(w):
    with pytest.raises(godwit.InvalidValue, match="7"):
        w.wait(7)
    with pytest.raises(godwit.InvalidType, match="ts"):
        w.wait("soon")


def test_values_that_require_a_gradient_are_not_pulled_into(w):
    module = torch.nn.Linear(4, 1)
    before = module.weight.tolist()
    with pytest.raises(godwit.InvalidValue, match=r"values: it requires a gradient.*detach"):
        w.pull(torch.tensor([0]), module.weight)
    assert module.weight.tolist() == before
    w.pull(torch.tensor([0]), module.weight.detach())
    assert module.weight.tolist() == [[0.0] * 4]


def test_values_are_not_written_over_the_keys():
    with godwit.Parameters(10, 1, "float64") as kv, kv.worker() as w:
        keys = np.arange(10)
        with pytest.raises(godwit.InvalidValue, match="values: it shares memory with keys"):
            w.pull(keys[3:], keys[:7].view(np.float64))
        assert keys.tolist() == list(range(10))
        w.push(keys[3:], keys[:7].view(np.float64))  # reading is fine


# ---- closing -------------------------------------------------------------------------------------


def every_call(kv, w):
    keys, values = torch.tensor([0]), torch.zeros(4)
    return [lambda: w.pull(keys, values), lambda: w.push(keys, values), lambda: w.set(keys, values), lambda: w.wait(-1),
            w.wait_all, w.advance_clock, lambda: w.current_clock, w.barrier, lambda: w.is_local(keys)], [
            kv.worker, kv.stats, lambda: kv.length(0)]


def test_a_closed_worker_says_so(kv):
    w = kv.worker()
    assert not w.closed
    w.close()
    w.close()
    assert w.closed
    of_worker, of_kv = every_call(kv, w)
    for call in of_worker:
        with pytest.raises(godwit.WrongState, match="this worker is closed"):
            call()
    kv.stats()


def test_closed_parameters_say_so_and_so_do_their_workers():
    kv = godwit.Parameters(3, 4, workers=2)
    w, other = kv.worker(), kv.worker()
    kv.close()
    kv.close()
    other.close()
    assert kv.closed and w.closed and kv.num_keys == 3
    of_worker, of_kv = every_call(kv, w)
    for call in of_worker + of_kv:
        with pytest.raises(godwit.WrongState, match="these parameters are closed"):
            call()
    with pytest.raises(RuntimeError):
        kv.stats()


def test_reprs_say_what_it_is():
    with godwit.Parameters(1000, 64, workers=2) as kv:
        assert repr(kv) == "<godwit.Parameters: 1000 keys of length 64, float32>"
        with kv.worker() as w:
            w.advance_clock()
            assert repr(w) == f"<godwit.Worker 0 of 2, clock 1, of {kv!r}>"
        assert repr(w) == "<godwit.Worker 0 of 2, closed>"
    assert repr(kv) == "<godwit.Parameters: 1000 keys of length 64, float32, closed>"
    with godwit.Parameters(2, [3, 1], "float64") as kv:
        assert repr(kv) == "<godwit.Parameters: 2 keys of lengths 1 to 3, float64>"


def test_what_nobody_refers_to_is_given_back():
    for _ in range(50):
        kv = godwit.Parameters(1000, 1000, workers=3)  # 4 MB each
        w = kv.worker()
        w.push(torch.tensor([5]), torch.ones(1000))
        if _ % 2:
            del kv
            assert "clock 0" in repr(w)  # it holds on to its parameters
    gc.collect()


def test_an_exception_in_a_with_block_comes_out():
    with pytest.raises(ZeroDivisionError):
        with godwit.Parameters(3, 4) as kv, kv.worker() as w:
            1 // 0
    assert kv.closed and w.closed


def test_a_world_that_is_left_takes_its_parameters_with_it(program):
    out = program.run("""
        import gc
        import torch
        import godwit
        kv = godwit.Parameters(3, 4, workers=2)
        w, other = kv.worker(), kv.worker()
        keys, values = torch.tensor([0]), torch.zeros(4)
        godwit.close()
        for call in (lambda: w.pull(keys, values), w.barrier, lambda: w.current_clock, kv.worker, kv.stats):
            try:
                call()
            except godwit.WrongState as error:
                print(error)
        print(kv, w.closed)
        w.close(), kv.close()
        del other, kv, w
        gc.collect()
        godwit.init()
        with godwit.Parameters(3, 4) as kv, kv.worker() as w:
            w.push(keys, values + 1)
            w.pull(keys, values)
        print(values.sum().item())
    """)
    lines = out.splitlines()
    assert len(lines) == 7 and all("their world was left" in line for line in lines[:5]), out
    assert lines[5:] == ["<godwit.Parameters: 3 keys of length 4, float32, closed> True", "4.0"]


def test_to_end_without_closing_is_fine(program):
    program.run("""
        import torch
        import godwit
        kv = godwit.Parameters(100_000, 64)
        w = kv.worker()
        w.push(torch.arange(1000), torch.ones(1000, 64))
    """)


def test_a_forked_child_is_refused_and_leaves_all_to_its_parent(program):
    out = program.run("""
        import gc, os
        import torch
        import godwit

        kv = godwit.Parameters(3, 4)
        w = kv.worker()
        keys, values = torch.tensor([0]), torch.zeros(4)
        w.push(keys, values + 1)
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (lambda: w.pull(keys, values), lambda: w.push(keys, values), lambda: w.set(keys, values),
                         lambda: w.wait(-1), w.wait_all, w.advance_clock, lambda: w.current_clock, w.barrier,
                         lambda: w.is_local(keys), lambda: w.localize(keys), lambda: w.intent(keys, 0), w.wait_sync,
                         w.begin_setup, w.end_setup, kv.worker, kv.stats, lambda: kv.length(0),
                         lambda: godwit.Parameters(3, 4)):
                try:
                    call()
                except godwit.WrongState as error:
                    refused += "forked" in str(error)
            fine = "forked" in repr(kv) and "forked" in repr(w)
            w.close(), kv.close()
            del w, kv
            gc.collect()
            os._exit(refused + fine)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        w.pull(keys, values)
        print(values.tolist(), w.current_clock)
        kv.close()
    """)
    assert out.splitlines() == ["19", "[1.0, 1.0, 1.0, 1.0] 0"]


# ---- threads and signals -------------------------------------------------------------------------


class Ticker(threading.Thread):
    """Counts whenever the interpreter is free.  While it runs, nobody has to give the interpreter away."""

    def __init__(self):
        super().__init__(daemon=True)
        self.count, self.stop = 0, False

    def run(self):
        while not self.stop:
            self.count += 1
            time.sleep(0)

    def __enter__(self):
        self.interval = sys.getswitchinterval()
        self.start()
        time.sleep(0.01)
        sys.setswitchinterval(60)
        return self

    def __exit__(self, *_):
        sys.setswitchinterval(self.interval)
        self.stop = True
        self.join()


@pytest.mark.parametrize("name", ["pull", "push", "set"])
def test_the_interpreter_is_free_while_much_is_moved_and_not_for_little(name):
    """Little is 16 KiB."""
    with godwit.Parameters(100_000, 64) as kv, kv.worker() as w:
        call = getattr(w, name)
        little, much = (torch.arange(64), torch.ones(64, 64)), (torch.arange(100_000), torch.ones(100_000, 64))
        with Ticker() as ticker:
            before = ticker.count
            for _ in range(1000):
                call(*little)
            assert ticker.count == before
            limit = time.monotonic() + 30
            while ticker.count == before:
                assert time.monotonic() < limit
                call(*much)
        w.is_local(much[0])


def test_two_threads_with_a_worker_each_lose_nothing():
    with godwit.Parameters(50, 300, workers=4) as kv:
        def work(w, seed):
            chance = np.random.default_rng(seed)
            for _ in range(100):
                n = int(chance.choice([1, 10, 200]))  # with and without the interpreter
                w.push(chance.integers(0, 50, n), np.ones((n, 300), np.float32))
                values = torch.empty(50, 300)
                w.pull(torch.arange(50), values)
                assert torch.equal(values, values[:, :1].expand(50, 300)), "a torn vector"
            w.barrier()

        workers = [kv.worker() for _ in range(4)]
        threads = [threading.Thread(target=work, args=(w, seed)) for seed, w in enumerate(workers)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        values = np.empty((50, 300), np.float32)
        workers[0].pull(np.arange(50), values)
        assert values.sum() == 300 * kv.stats()["keys_pushed"]


def in_thread(call):
    """Start it, and give it the time to get stuck."""
    outcome = []

    def run():
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    time.sleep(0.1)
    return thread, outcome


def test_a_worker_that_is_in_a_call_refuses_other_threads():
    with godwit.Parameters(3, 4, workers=2) as kv:
        w, other = kv.worker(), kv.worker()
        thread, outcome = in_thread(w.barrier)
        keys, values = torch.tensor([0]), torch.zeros(4)
        for call in (lambda: w.pull(keys, values), w.barrier, w.close, lambda: w.is_local(keys)):
            with pytest.raises(godwit.WrongState, match="another thread"):
                call()
        assert w.current_clock == 0 and "clock 0" in repr(w)  # to look is fine
        other.barrier()
        thread.join()
        assert outcome == [None]
        w.pull(keys, values)


def test_a_barrier_counts_all_workers_until_they_are_closed():
    with godwit.Parameters(3, 4, workers=3) as kv:
        workers = [kv.worker() for _ in range(3)]
        first, of_first = in_thread(workers[0].barrier)
        second, of_second = in_thread(workers[1].barrier)
        assert of_first == of_second == []
        workers[2].close()
        first.join()
        second.join()
        assert of_first == of_second == [None]


def test_close_waits_for_calls_of_other_threads():
    kv = godwit.Parameters(3, 4, workers=2)
    w, other = kv.worker(), kv.worker()
    thread, outcome = in_thread(w.barrier)
    closing, of_close = in_thread(kv.close)
    for call in (lambda: other.wait(-1), kv.worker, other.barrier):
        with pytest.raises(godwit.WrongState, match="are closed"):
            call()
    assert of_close == []
    closing.join(10)
    # Nobody could come to the barrier any more, so close() gives up after a while.
    assert [type(error) for error in of_close] == [godwit.WrongState] and "still inside" in str(of_close[0])
    other.barrier()
    thread.join()
    assert outcome == [None]
    kv.close()


def test_close_amid_calls_of_other_threads_ends_these(program):
    program.run("""
        import threading, time
        import torch
        import godwit

        for turn in range(20):
            kv = godwit.Parameters(20_000, 64, workers=3)
            ends = []
            def work(w, n):
                keys, values = torch.arange(n), torch.ones(n, 64)
                try:
                    while True:
                        w.push(keys, values)
                except godwit.WrongState as error:
                    ends.append(str(error))
            threads = [threading.Thread(target=work, args=(kv.worker(), n)) for n in (1, 1000, 20_000)]
            [thread.start() for thread in threads]
            time.sleep(0.01)
            kv.close() if turn % 2 else godwit.close()
            [thread.join() for thread in threads]
            assert len(ends) == 3 and all("closed" in end for end in ends), ends
            if turn % 2 == 0:
                godwit.init()
    """)


def test_ctrl_c_ends_a_barrier(program):
    process = program.start("""
        import godwit
        kv = godwit.Parameters(3, 4, workers=2)
        w, other = kv.worker(), kv.worker()
        print("ready", flush=True)
        try:
            w.barrier()
        except KeyboardInterrupt:
            other.barrier()
            w.barrier()       # goes on where it was
            print("interrupted", flush=True)
        kv.close()
    """)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == ("interrupted\n", 0), err


def test_a_barrier_that_nobody_comes_to_says_who_is_missing(program):
    out = program.run("""
        import godwit
        godwit.init(timeout=0.3)
        with godwit.Parameters(3, 4, workers=2) as kv:
            try:
                kv.worker().barrier()
            except godwit.TimedOut as error:
                print(error)
    """)
    assert "rank 0" in out.splitlines()[0] and "workers' barrier" in out


# ---- calls that are not done when they return ----------------------------------------------------

LATER = r"""
#include <dlfcn.h>
#include <godwit/params.h>
#include <stdlib.h>

/* A library in which calls with a ticket are done only when they are waited for. */
typedef int call(gw_worker *, gw_keys, void *, size_t, gw_ticket *);
static struct { gw_worker *worker; gw_keys keys; void *values; size_t n; const char *name; } pending[64];
static int64_t n_pending;

static void *real(const char *name)
{
    return dlsym(dlopen(getenv("REAL_LIBRARY"), RTLD_NOW | RTLD_NOLOAD), name);
}

static int later(const char *name, gw_worker *w, gw_keys k, void *v, size_t n, gw_ticket *t)
{
    if (t == NULL)
        return ((call *)real(name))(w, k, v, n, NULL);
    t->seq = n_pending++;
    pending[t->seq].worker = w, pending[t->seq].keys = k, pending[t->seq].values = v;
    pending[t->seq].n = n, pending[t->seq].name = name;
    return 0;
}

int gw_worker_pull(gw_worker *w, gw_keys k, void *v, size_t n, gw_ticket *t)
{ return later("gw_worker_pull", w, k, v, n, t); }

int gw_worker_push(gw_worker *w, gw_keys k, const void *v, size_t n, gw_ticket *t)
{ return later("gw_worker_push", w, k, (void *)v, n, t); }

int gw_worker_wait(gw_worker *w, gw_ticket t)
{
    if (w == NULL || t.seq == -1 || pending[t.seq].worker != w)
        return 0;
    pending[t.seq].worker = NULL;
    return ((call *)real(pending[t.seq].name))(w, pending[t.seq].keys, pending[t.seq].values, pending[t.seq].n, NULL);
}

int gw_worker_wait_all(gw_worker *w)
{
    for (int64_t i = 0; i < n_pending; i++) {
        gw_ticket t = {i};
        gw_worker_wait(w, t);
    }
    return 0;
}

int gw_worker_is_done(gw_worker *w, gw_ticket t)
{ return t.seq == -1 || pending[t.seq].worker != w; }

int gw_worker_close(gw_worker *w)
{
    gw_worker_wait_all(w);
    return ((int (*)(gw_worker *))real("gw_worker_close"))(w);
}
"""


@pytest.fixture(scope="module")
def later(tmp_path_factory):
    """A library to load first, in which asynchronous calls take until they are waited for."""
    compiler = shutil.which("cc") or pytest.skip("needs a C compiler")
    directory = tmp_path_factory.mktemp("later")
    (directory / "later.c").write_text(LATER)
    subprocess.run([compiler, "-shared", "-fPIC", "-I", godwit.get_include(), "-o", directory / "later.so",
                    directory / "later.c", "-ldl"], check=True)
    real = next(line.split()[-1] for line in open("/proc/self/maps") if "libgodwit.so" in line)
    return {**os.environ, "LD_PRELOAD": str(directory / "later.so"), "REAL_LIBRARY": real}


def test_a_call_that_is_not_done_keeps_its_arrays(program, later):
    out = program.run("""
        import gc, sys, weakref
        import numpy as np, torch
        import godwit

        kv = godwit.Parameters(5000, 64, workers=3)
        w = kv.worker()
        def start(kind, name, number):
            keys = np.arange(5000, dtype=kind)
            values = np.full((5000, 64), number, np.float32)
            ts = getattr(w, name)(keys, values, True)
            alive.extend((weakref.ref(keys), weakref.ref(values)))
            return ts
        def churn():
            gc.collect()
            for _ in range(20):
                np.full((5000, 64), 77, np.float32), np.full(5000, 10**9)
        alive = []
        first, second = start(np.int64, "push", 1), start(np.int32, "push", 2)
        churn()
        print(first, second, [ref() is not None for ref in alive])
        w.wait(second)
        gc.collect()
        print([ref() is not None for ref in alive])
        w.wait_all()
        gc.collect()
        print([ref() is not None for ref in alive])

        # PyTorch can give a tensor other memory; the call goes on with the memory that it had.
        keys, values = torch.arange(5000), torch.full((5000, 64), 4.0)
        ts = w.push(keys, values, asynchronous=True)
        keys.data, values.data = torch.zeros(1, dtype=torch.int64), torch.zeros(1)
        churn()
        del keys, values
        churn()
        w.wait(ts)
        got = torch.empty(5000, 64)
        w.pull(torch.arange(5000), got)
        print(got.unique().tolist())

        other = kv.worker()
        keys, values = torch.arange(3, dtype=torch.int32), torch.zeros(3, 64)
        print(other.pull(keys, values, True) > 0, values.sum().item())
        other.close()
        print(values.sum().item() > 0)
        last = kv.worker()
        last.push(np.arange(3), np.ones((3, 64), np.float32), True)
        del last
        kv.close()
    """, env=later)
    assert out.splitlines() == ["0 1 [True, True, True, True]", "[True, True, False, False]",
                                "[False, False, False, False]", "[7.0]", "True 0.0", "True"]


# ---- the jobs' checks, and examples --------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2])
def test_the_checks_of_the_jobs_pass_with_this_pytorch(n):
    env = {**os.environ, "GODWIT_TIMEOUT": "60", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", "godwit", "run", "-n", str(n),
                           str(ROOT / "tests" / "jobs" / "params_values.py")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.count("passed") >= 5 * n


def docstrings():
    """The indented examples in the docstrings of Parameters, Worker and what they have."""
    for owner in (godwit.Parameters, godwit.Worker):
        members = {f"{owner.__name__}.{name}": getattr(owner, name) for name in vars(owner)}
        for name, member in {owner.__name__: owner, **members}.items():
            lines = (inspect.getdoc(member) or "").splitlines()
            code = [line for line in lines if line.startswith("    ")]
            if code:
                yield pytest.param(textwrap.dedent("\n".join(code)), id=name)


@pytest.mark.parametrize("example", list(docstrings()))
def test_examples_in_docstrings_run(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    workers = 2 if "kv.worker()" in example else 1  # barriers count them all
    with godwit.Parameters(1000, 4, workers=workers) as kv, kv.worker() as w:
        exec(example, {"torch": torch, "godwit": godwit, "kv": kv, "w": w, "keys": torch.tensor([3, 14, 15])})


def test_signatures_can_be_asked_for():
    assert str(inspect.signature(godwit.Parameters)) == (
        "(num_keys, lengths, dtype='float32', workers=1, technique='all')")
    assert str(inspect.signature(godwit.Worker.localize)) == "(self, /, keys, asynchronous=False)"
    assert str(inspect.signature(godwit.Worker.intent)) == "(self, /, keys, start, end=None)"
    assert str(inspect.signature(godwit.Worker.push)) == "(self, /, keys, updates, asynchronous=False)"
    assert all(getattr(godwit.Worker, name).__doc__ for name in dir(godwit.Worker) if not name.startswith("_"))
