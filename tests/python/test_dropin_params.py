"""The look-alikes of AdaPM and Lapse in one process: names, arguments, refusals.

Servers and schedulers that find each other are in tests/jobs; here a server is alone and needs none.
"""

import gc
import threading

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

import godwit  # noqa: E402
from godwit.dropin import adapm, keyed, lapse, meeting  # noqa: E402

VARIABLES = {"DMLC_NUM_SERVER": "1", "DMLC_ROLE": "server", "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "9091"}


class Room:
    rank = 0

    def barrier(self):
        pass


class Alone:
    """A meeting of one process."""

    def __init__(self, role, call):
        meeting.read_variables(role, call)

    def open_room(self):
        return Room()

    def wait_for_all(self):
        pass

    def close(self):
        pass


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(keyed, "_settings", None)
    monkeypatch.setattr(keyed, "_hooked_in", keyed.os.getpid())  # these servers end with their tests
    monkeypatch.setattr(meeting, "Meeting", Alone)
    yield
    if keyed._server is not None:
        keyed._server.shutdown()


def server(lengths=2, num_keys=10, num_threads=1, of=adapm, **more):
    of.setup(num_keys, num_threads, **more)
    return of.Server(lengths)


@pytest.fixture
def kv():
    return adapm.Worker(0, server())


def pulled(kv, keys, n):
    values = torch.zeros(n)
    kv.pull(torch.tensor(keys), values)
    return values.tolist()


# ---- what the variables say -----------------------------------------------------------------


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_that_is_missing_is_named(monkeypatch, name):
    monkeypatch.delenv(name)
    with pytest.raises(godwit.WrongState, match=f"the variable {name} is not set"):
        server()


@pytest.mark.parametrize("name, value, words", [
    ("DMLC_NUM_SERVER", "0", "DMLC_NUM_SERVER is '0'; it must be a whole number from 1 to 1023"),
    ("DMLC_NUM_SERVER", "four", "DMLC_NUM_SERVER is 'four'"),
    ("DMLC_NUM_SERVER", "-1", "DMLC_NUM_SERVER is '-1'"),
    ("DMLC_PS_ROOT_PORT", "70000", "DMLC_PS_ROOT_PORT is '70000'; it must be a whole number from 1 to 65535"),
    ("DMLC_PS_ROOT_PORT", "9091.0", "DMLC_PS_ROOT_PORT is '9091.0'"),
    ("DMLC_PS_ROOT_URI", "no such place", "DMLC_PS_ROOT_URI is 'no such place', which is no address"),
])
def test_a_variable_that_makes_no_sense_is_refused(monkeypatch, name, value, words):
    monkeypatch.setenv(name, value)
    with pytest.raises(godwit.InvalidValue, match=words):
        server()


def test_roles_and_calls_belong_together(monkeypatch):
    with pytest.raises(godwit.WrongState, match="DMLC_ROLE is 'server', but scheduler"):
        adapm.scheduler(10, 1)
    for role in ("scheduler", "worker"):
        monkeypatch.setenv("DMLC_ROLE", role)
        with pytest.raises(godwit.WrongState, match=f"DMLC_ROLE is '{role}', but Server"):
            server()


def test_another_machine_needs_mpi(monkeypatch):
    monkeypatch.setenv("DMLC_PS_ROOT_URI", "192.0.2.1")  # an address of nobody, kept for examples
    with pytest.raises(godwit.Unsupported, match="192.0.2.1.*no address of this machine.*needs MPI.*mpirun"):
        server()


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "127.1.2.3", "0.0.0.0"])
def test_addresses_of_this_machine_are_fine(monkeypatch, address):
    monkeypatch.setenv("DMLC_PS_ROOT_URI", address)
    assert server().my_rank() == 0


# ---- setup and servers ------------------------------------------------------------------------


@pytest.mark.parametrize("of", [adapm, lapse])
def test_setup_comes_first(of):
    with pytest.raises(godwit.WrongState, match="call setup"):
        of.Server(2)


@pytest.mark.parametrize("arguments, words", [
    ((0, 1), "num_keys is 0; it must be at least 1"),
    ((10, 0), "num_threads is 0"),
    ((10, 1.0), "num_threads: 1.0 is no whole number"),
    (("10", 1), "num_keys: '10' is no whole number"),
])
def test_setup_refuses_what_makes_no_sense(arguments, words):
    for call in (adapm.setup, adapm.scheduler, lapse.setup, lapse.scheduler):
        with pytest.raises(godwit.Error, match=words):
            call(*arguments)


def test_techniques_and_channels():
    for name in ("", "all", "replication_only", "relocation_only", "static"):
        adapm.setup(10, 1, name, 4)
        assert keyed._settings.technique == (name.partition("_")[0] or "all")
    adapm.setup(10, 1, use_techniques="", num_channels=-1)
    with pytest.raises(godwit.InvalidValue, match="use_techniques is 'replication'; give"):
        adapm.setup(10, 1, "replication")
    with pytest.raises(godwit.InvalidValue, match="num_channels is 0"):
        adapm.setup(10, 1, num_channels=0)


@pytest.mark.parametrize("lengths", [
    [2, 2, 5], torch.tensor([2.0, 2.0, 5.0]), torch.tensor([2, 2, 5]), torch.tensor([2, 2, 5], dtype=torch.int32),
    np.array([2, 2, 5]), np.array([2.0, 2.0, 5.0]), torch.tensor([[2.0], [2.0], [5.0]]), torch.tensor([2.0, 0, 2, 0, 5, 0])[::2],
])
def test_lengths_may_be_floats(lengths):
    kv = adapm.Worker(0, server(lengths, num_keys=3))
    assert [kv.get_key_size(key) for key in range(3)] == [2, 2, 5]
    assert kv.get_key_size() == 2 and kv.get_key_size(key_id=2) == 5 and kv.get_key_size(key=2) == 5
    assert kv.num_keys == 3


@pytest.mark.parametrize("length", [4, np.int64(4), torch.tensor([4.0]), np.array([4])])
def test_one_length_is_that_of_all(length):
    assert adapm.Worker(0, server(length)).get_key_size(9) == 4


@pytest.mark.parametrize("lengths, kind, words", [
    (torch.tensor([2.0, 2.5, 1.0]), ValueError, r"value_lengths\[1\] is 2.5; lengths are whole numbers"),
    (torch.tensor([2.0, float("nan"), 1.0]), ValueError, r"value_lengths\[1\] is nan"),
    (torch.tensor([2, 2]), ValueError, "lengths"),
    (torch.tensor([2, 0, 1]), ValueError, "lengths"),
    (2.5, TypeError, "2.5 is no whole number"),
    ("2", TypeError, "lengths"),
])
def test_lengths_that_make_no_sense_are_refused_and_nothing_stays_open(lengths, kind, words):
    with pytest.raises(kind, match=words):
        server(lengths, num_keys=3)
    assert server(2).my_rank() == 0


def test_lapse_also_has_the_number_of_keys_before_the_length():
    assert lapse.Worker(0, 1, (lapse.setup(10, 1), lapse.Server(10, 4))[1]).get_key_size() == 4
    keyed._server.shutdown()
    with pytest.raises(godwit.InvalidValue, match="Server.. is for 11 keys, but setup.. was told of 10"):
        lapse.Server(11, 4)


def test_a_process_has_one_server():
    first = server()
    with pytest.raises(godwit.WrongState, match="has a server already"):
        adapm.Server(2)
    first.shutdown()
    first.shutdown()
    assert "shut down" in repr(first)
    for call in (first.my_rank, first.barrier, lambda: adapm.Worker(0, first)):
        with pytest.raises(godwit.WrongState, match="was shut down"):
            call()
    server().barrier()


# ---- workers ------------------------------------------------------------------------------------


def test_workers_have_numbers():
    s = server(num_threads=2)
    first = adapm.Worker(0, s)
    with pytest.raises(godwit.WrongState, match="there is a worker 0 already"):
        adapm.Worker(0, s)
    with pytest.raises(godwit.InvalidValue, match="id is 2; workers of a node are 0 to 1"):
        adapm.Worker(2, s)
    with pytest.raises(godwit.InvalidValue, match="at least 0"):
        adapm.Worker(-1, s)
    with pytest.raises(godwit.InvalidType, match="is no Server"):
        adapm.Worker(0, "s")
    first.push(torch.tensor([3]), torch.ones(2))
    first.advance_clock()
    del first
    gc.collect()
    again = adapm.Worker(0, s)
    assert again.current_clock() == 1 and pulled(again, [3], 2) == [1, 1]
    adapm.Worker(1, s)
    assert "Worker 0" in repr(again)


def test_customers_of_lapse_count_from_one():
    s = server(of=lapse, num_threads=2)

    class Mine(lapse.Worker):
        def __init__(self, customer_id, worker_id, lapse_server):
            super().__init__(customer_id, worker_id, lapse_server)
            self.worker_id = worker_id

    with pytest.raises(godwit.InvalidValue, match="customer_id is 0.*count from 1"):
        lapse.Worker(0, 0, s)
    with pytest.raises(godwit.InvalidType, match="1 arguments were given"):
        lapse.Worker(s)
    mine, later = Mine(0, 7, s), lapse.Worker(0, s)
    assert mine.worker_id == 7 and mine.num_keys == later.num_keys == 10
    with pytest.raises(godwit.WrongState, match="no worker 2: setup.. was told of 2 threads, and there are the workers 0, 7"):
        lapse.Worker(0, 2, s)
    assert mine.localize(torch.tensor([1, 2])) == -1
    assert mine.localize([1, 2], True) == -1
    assert mine.localize(np.array([1]), **{"async": True}) == -1
    with pytest.raises(godwit.OutOfRange, match="10"):
        mine.localize([10])


def test_workers_end_together():
    s = server(num_threads=3)
    workers = [adapm.Worker(w, s) for w in range(3)]
    threads = [threading.Thread(target=workers[w].finalize) for w in range(2)]
    [thread.start() for thread in threads]
    threads[0].join(0.1)
    assert threads[0].is_alive()  # the third has not come
    workers[2].finalize()
    [thread.join() for thread in threads]
    workers[0].finalize()
    with pytest.raises(godwit.WrongState):
        workers[0].pull(torch.tensor([1]), torch.zeros(2))
    with pytest.raises(godwit.WrongState, match="worker 0 was finalized"):
        del workers[0]
        adapm.Worker(0, s)


# ---- access -------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [torch.tensor([1, 2]), np.array([1, 2]), [1, 2], (1, 2)])
@pytest.mark.parametrize("make", [torch.tensor, lambda numbers: np.array(numbers, dtype=np.float32)])
@pytest.mark.parametrize("asynchronous", [(), (False,), (True,), (np.bool_(True),)])
def test_pull_push_and_set(kv, keys, make, asynchronous):
    kv.set(keys, make([1.0, 2, 3, 4]), *asynchronous)
    kv.push(keys, make([10.0, 10, 10, 10]), *asynchronous)
    values = make([0.0] * 4)
    ts = kv.pull(keys, values, *asynchronous)
    assert isinstance(ts, int) and kv.wait(ts) is None and kv.wait(-1) is None
    assert values.tolist() == [11, 12, 13, 14]
    kv.waitall()


def test_arguments_by_name(kv):
    kv.push(keys=torch.tensor([1]), vals=torch.ones(2))
    kv.push(torch.tensor([1]), torch.ones(2), **{"async": True})
    kv.set(torch.tensor([2]), vals=torch.ones(2), **{"async": False})
    values = torch.zeros(4)
    kv.pull(vals=values, keys=torch.tensor([1, 2]), **{"async": True})
    assert values.tolist() == [2, 2, 1, 1]
    for call in (kv.pull, kv.push, kv.set):
        with pytest.raises(TypeError, match="there is no argument 'sync'"):
            call(torch.tensor([1]), torch.ones(2), sync=True)


def test_values_that_require_a_gradient_are_pulled_into(kv):
    kv.push(torch.tensor([1]), torch.ones(2, requires_grad=True))
    values = torch.zeros(2, requires_grad=True)
    kv.pull(torch.tensor([1]), values)
    assert values.tolist() == [1, 1] and values.requires_grad
    kv.pull([1], values, True)


def test_what_is_written_asynchronously_is_copied(kv):
    seen = []
    for make in (torch.ones, lambda n: np.ones(n, dtype=np.float32)):
        keys, values = torch.tensor([1]), make(2)
        kv._write(lambda *given: seen.append(given), keys, values, True)
        assert seen[-1][0] is not keys and seen[-1][1] is not values and seen[-1][2] is True
        kv._write(lambda *given: seen.append(given), keys, values, False)
        assert seen[-1][0] is keys and seen[-1][1] is values and len(seen[-1]) == 2


@pytest.mark.parametrize("keys, values, kind, words", [
    ([10], torch.ones(2), IndexError, "10"),
    (torch.tensor([-1]), torch.ones(2), IndexError, "-1"),
    (torch.tensor([1]), torch.ones(3), ValueError, "3 entries"),
    (torch.tensor([1.0]), torch.ones(2), TypeError, "keys"),
    ([1.5], torch.ones(2), TypeError, "keys"),
    ([1 << 70], torch.ones(2), TypeError, "keys"),
    (torch.tensor([1]), torch.ones(2, dtype=torch.float64), TypeError, "float64"),
    (torch.tensor([1]), [1.0, 1.0], TypeError, "list"),
])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_bad_calls_are_refused(kv, keys, values, kind, words, asynchronous):
    for call in (kv.push, kv.set, kv.pull):
        with pytest.raises(kind, match=words) as refusal:
            call(keys, values, asynchronous)
        assert isinstance(refusal.value, godwit.Error)
    assert pulled(kv, [1], 2) == [0, 0]


def test_clocks_and_intents(kv):
    assert kv.current_clock() == 0
    for keys in (torch.tensor([1]), np.array([1]), [1]):
        assert kv.intent(keys, kv.current_clock() + 1) == -1
        assert kv.intent(keys, 1, 0) == kv.intent(keys, start=1, end=5) == -1
    kv.advance_clock()
    assert kv.current_clock() == 1
    with pytest.raises(godwit.InvalidValue, match="end is 2; it must be after start, which is 3"):
        kv.intent([1], 3, 2)
    with pytest.raises(godwit.OutOfRange):
        kv.intent([10], 3)


def test_meetings_of_workers(kv):
    for call in (kv.begin_setup, kv.end_setup, kv.wait_sync, kv.wait_replica_sync, kv.barrier, kv.waitall):
        assert call() is None


# ---- sampling -------------------------------------------------------------------------------------


class Recorder:
    """Takes down what is called."""

    closed = False

    def __init__(self, calls):
        self.calls = calls

    def __getattr__(self, name):
        return lambda *arguments, **named: self.calls.append((name, arguments, named)) or len(self.calls)


def test_sampling_is_asked_for_as_parameters_have_it(kv, monkeypatch):
    calls = []
    monkeypatch.setattr(kv, "_native", Recorder(calls))
    monkeypatch.setattr(kv._server, "_kv", Recorder(calls))
    kv._server.enable_sampling_support(scheme="local", with_replacement=True, distribution="uniform", min=2, max=8)
    kv._server.enable_sampling_support("pool", 0, "log-uniform", 0, 10)
    assert kv.prepare_sample(8, 3) == 3 and kv.prepare_sample(8, 3, 0) == 4 and kv.prepare_sample(8, 3, end=7) == 5
    assert kv.pull_sample(3, "keys", "vals") == 6
    kv.pull_sample(3, "keys", "vals", True)
    kv.pull_sample(3, "keys", "vals", **{"async": True})
    kv.finish_sample(3)
    monkeypatch.undo()
    assert calls == [
        ("enable_sampling", (), dict(scheme="local", distribution="uniform", min=2, max=8, replacement=True)),
        ("enable_sampling", (), dict(scheme="pool", distribution="log-uniform", min=0, max=10, replacement=False)),
        ("prepare_sample", (8, 3, None), {}),
        ("prepare_sample", (8, 3, None), {}),
        ("prepare_sample", (8, 3, 7), {}),
        ("pull_sample", (3, "keys", "vals", False), {}),
        ("pull_sample", (3, "keys", "vals", True), {}),
        ("pull_sample", (3, "keys", "vals", True), {}),
        ("finish_sample", (3,), {}),
    ]


class Sampler(Recorder):
    """Draws the keys that it was told to, and refuses as Godwit's does."""

    def __init__(self, drawn, longest):
        super().__init__([])
        self.drawn, self.longest = drawn, longest

    def pull_sample(self, handle, keys, values, asynchronous=False):
        n = values.numel() if isinstance(values, torch.Tensor) else memoryview(values).nbytes // 4
        if n < len(keys) * self.longest:
            raise godwit.InvalidValue("values has too few entries")
        for i, key in enumerate(self.drawn):
            keys[i] = key
        at = 0
        for key in self.drawn:
            for _ in range(keyed._server._kv.length(key)):
                values[at] = float(key)
                at += 1
        return 7


@pytest.mark.parametrize("make", [torch.zeros, lambda *shape: np.zeros(shape, dtype=np.float32)])
@pytest.mark.parametrize("of", [torch.tensor, list, np.array])
def test_a_sample_of_vectors_of_several_lengths_needs_no_more_room_than_they_have(monkeypatch, make, of):
    s = server(of([2, 2, 5, 2, 2, 2, 2, 2, 2, 2]))
    monkeypatch.setattr(s, "_kv", type("Kv", (), {"closed": False, "length": staticmethod(s._kv.length), "real": s._kv,
                                                  "enable_sampling": lambda self, **named: None})())
    s.enable_sampling_support("naive", True, "uniform", 3, 9)
    assert s._longest_sampled == 0
    s.enable_sampling_support("naive", True, "uniform", 0, 9)
    assert s._longest_sampled == 5
    kv = adapm.Worker.__new__(adapm.Worker)
    kv._server, keys = s, torch.zeros(2, dtype=torch.int64)

    kv._native = Sampler([1, 3], 5)
    values = make(2, 2)
    assert kv.pull_sample(1, keys, values) == -1
    assert keys.tolist() == [1, 3] and values.tolist() == [[1, 1], [3, 3]]
    values = make(10)
    assert kv.pull_sample(1, keys, values, True) == 7 and values.tolist() == [1, 1, 3, 3, 0, 0, 0, 0, 0, 0]

    kv._native = Sampler([2, 4], 5)
    values = make(4)
    with pytest.warns(RuntimeWarning, match=r"vals has 4 entries, but the vectors of the sampled keys \[2, 4\] have 7; the last 3"):
        kv.pull_sample(1, keys, values)
    assert keys.tolist() == [2, 4] and values.tolist() == [2, 2, 2, 2]

    kv._native = Sampler([2, 4], 6)  # refused for another reason, also with room for the longest
    for values in (make(10), make(2, 4)[:, ::2]):
        with pytest.raises(godwit.InvalidValue, match="too few"):
            kv.pull_sample(1, keys, values)
    monkeypatch.setattr(s, "_kv", s._kv.real)
