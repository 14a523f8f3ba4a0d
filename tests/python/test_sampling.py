"""Samples in a world of one: what the calls mean and what they refuse.  Jobs, and distributions, are in tests/jobs."""

import inspect
import math
import threading

import pytest

import godwit

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")


@pytest.fixture(scope="module", autouse=True)
def world():
    godwit.init()
    yield
    godwit.close()


@pytest.fixture
def kv():
    """A hundred keys with vectors of length 2, which hold their keys."""
    with godwit.Parameters(100, 2, workers=2) as opened:
        with opened.worker() as w:
            w.set(torch.arange(100), torch.arange(100.0).repeat_interleave(2))
        yield opened


@pytest.fixture
def w(kv):
    with kv.worker() as worker:
        yield worker


def pulled(w, h, n):
    keys, values = torch.full((n,), -1), torch.empty(n, 2)
    assert w.pull_sample(h, keys, values) == -1
    assert (values == keys[:, None]).all()
    return keys.tolist()


SCHEMES = ["naive", "preloc", "pool", "local"]


# ---- meaning -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_sample_is_pulled_in_portions_until_it_is_used_up(kv, w, scheme):
    kv.enable_sampling(scheme, min=20, max=30)
    h = w.prepare_sample(50)
    found = pulled(w, h, 20) + pulled(w, h, 1) + pulled(w, h, 29)
    assert set(found) == set(range(20, 30))
    with pytest.raises(godwit.InvalidValue, match=f"sample {h} is used up or finished"):
        pulled(w, h, 1)
    w.finish_sample(h)
    assert w.prepare_sample(0) == h + 1


@pytest.mark.parametrize("make", [lambda n: torch.empty(n, dtype=torch.int64), lambda n: np.empty(n, np.int64)])
def test_keys_and_values_are_tensors_or_arrays_of_any_shape(kv, w, make):
    kv.enable_sampling()
    h = w.prepare_sample(12, 5, 9)
    keys, values = make(12).reshape(3, 4), np.empty((2, 12), np.float32)
    assert w.pull_sample(h=h, keys=keys, values=values, asynchronous=True) == -1
    assert values.ravel().tolist() == [float(key) for key in keys.ravel().tolist() for _ in range(2)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int32, list, torch.float64, torch.float32])
def test_weights_may_have_any_usual_type(kv, w, dtype):
    weights = [0.0] * 100
    weights[7], weights[60] = 3, 1
    kv.enable_sampling("naive", weights=weights if dtype is list else
                       torch.tensor(weights, dtype=dtype) if isinstance(dtype, torch.dtype) else np.array(weights, dtype))
    found = pulled(w, w.prepare_sample(4000), 4000)
    assert set(found) == {7, 60} and abs(found.count(7) - 3000) < 4 * math.sqrt(750)


def test_each_key_of_a_pool_is_used_equally_often(kv, w):
    kv.enable_sampling("pool", pool_size=10, reuse=5)
    found = pulled(w, w.prepare_sample(100), 100)
    for pool in (found[:50], found[50:]):
        assert all(sorted(pool[i:i + 10]) == sorted(pool[:10]) for i in range(0, 50, 10))
    assert sorted(found[:10]) != sorted(found[50:60])


@pytest.mark.parametrize("scheme", ["naive", "preloc", "local"])
def test_without_replacement_all_keys_of_a_sample_differ(kv, w, scheme):
    kv.enable_sampling(scheme, "log-uniform", replacement=False)
    for _ in range(5):
        h = w.prepare_sample(100)
        assert sorted(pulled(w, h, 60) + pulled(w, h, 40)) == list(range(100))
    with pytest.raises(godwit.InvalidValue, match="n is 101, but without replacement a sample has at most 100 keys"):
        w.prepare_sample(101)


def test_a_seed_repeats_the_draws_and_another_does_not():
    found = []
    for seed in (4, 4, -5):
        with godwit.Parameters(1000, 1) as kv, kv.worker() as w:
            kv.enable_sampling("naive", seed=seed)
            keys = torch.empty(100, dtype=torch.int64)
            w.pull_sample(w.prepare_sample(100), keys, torch.empty(100))
            found.append(keys.tolist())
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("scheme", ["naive", "preloc", "pool"])
def test_portions_do_not_change_what_a_sample_has(scheme):
    found = []
    for portions in ((300,), (1, 99, 130, 70)):
        with godwit.Parameters(1000, 2) as kv, kv.worker() as w:
            w.set(np.arange(1000), np.repeat(np.arange(1000, dtype=np.float32), 2))
            kv.enable_sampling(scheme, weights=np.arange(1000), seed=12)
            first, second = w.prepare_sample(300), w.prepare_sample(300)
            drawn = [pulled(w, h, n) for n in portions for h in (second, first)]  # in turns
            found.append([sum(drawn[i::2], []) for i in range(2)])
    assert found[0] == found[1] and found[0][0] != found[0][1]


def test_threads_with_workers_of_their_own_sample_at_the_same_time():
    with godwit.Parameters(1000, 8, workers=4) as kv:
        kv.enable_sampling("pool", weights=np.arange(1000))
        found = []

        def work():
            with kv.worker() as w:
                keys, values = np.empty(500, np.int64), np.empty((500, 8), np.float32)
                for _ in range(50):
                    w.pull_sample(w.prepare_sample(500), keys, values)
                found.append(keys.tolist())

        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(found) == 4 and len({tuple(keys) for keys in found}) == 4


def test_vectors_of_different_lengths_need_room_for_the_longest():
    with godwit.Parameters(10, [1, 2] * 5) as kv, kv.worker() as w:
        kv.enable_sampling("naive")
        h, keys = w.prepare_sample(6), np.empty(6, np.int64)
        with pytest.raises(godwit.InvalidValue, match="values has 11 entries, but 6 vectors of up to 2 need room for 12"):
            w.pull_sample(h, keys, np.empty(11, np.float32))
        values = np.full(12, -1, np.float32)
        w.pull_sample(h, keys, values)
        used = int((1 + keys % 2).sum())
        assert (values[:used] == 0).all() and (values[used:] == -1).all()


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments, error, text", [
    ({"scheme": "best"}, godwit.InvalidValue, "scheme: 'best' is not known; give 'naive', 'preloc', 'pool' or 'local'"),
    ({"scheme": 3}, godwit.InvalidType, "scheme: 3 is no text"),
    ({"distribution": "normal"}, godwit.InvalidValue, "distribution: 'normal' is not known"),
    ({"distribution": "uniform", "weights": [1] * 100}, godwit.InvalidValue, "'uniform' and weights were both given"),
    ({"min": 7, "max": 7}, godwit.InvalidValue, "min is 7 and max is 7"),
    ({"max": 101}, godwit.OutOfRange, "max is 101, but there are only 100 keys"),
    ({"max": -1}, godwit.OutOfRange, "max is -1"),
    ({"min": -2}, godwit.OutOfRange, "min is -2"),
    ({"min": 1.5}, godwit.InvalidType, "min: 1.5 is no whole number"),
    ({"weights": np.ones(99)}, godwit.InvalidValue, "weights has 99 entries, but there are 100 keys"),
    ({"weights": np.ones(100), "max": 50}, godwit.InvalidValue, "weights has 100 entries, but there are 50 keys"),
    ({"weights": []}, godwit.InvalidValue, "weights has 0 entries"),
    ({"weights": np.zeros(100)}, godwit.InvalidValue, "all 100 are 0"),
    ({"weights": -np.ones(100)}, godwit.InvalidValue, r"weights\[0\] is -1"),
    ({"weights": [1.0] * 99 + [math.nan]}, godwit.InvalidValue, r"weights\[99\] is nan"),
    ({"weights": [1.0] * 99 + [math.inf]}, godwit.InvalidValue, r"weights\[99\] is inf"),
    ({"weights": [1.0] * 99 + ["x"]}, godwit.InvalidType, r"weights\[99\]: 'x' is no number"),
    ({"weights": [10 ** 400] * 100}, godwit.OutOfRange, r"weights\[0\]"),
    ({"weights": np.ones(200)[::2]}, godwit.InvalidValue, "weights"),
    ({"weights": 5}, godwit.InvalidType, "weights"),
    ({"weights": "text"}, godwit.InvalidType, "weights"),
    ({"scheme": "pool", "replacement": False}, godwit.Unsupported, "the scheme 'pool' uses keys several times"),
    ({"replacement": np.ones(2)}, godwit.InvalidType, "replacement"),
    ({"pool_size": 0}, godwit.InvalidValue, "pool_size is 0"),
    ({"reuse": -1}, godwit.InvalidValue, "reuse is -1"),
    ({"seed": 2 ** 64}, godwit.OutOfRange, "seed"),
])
def test_bad_options_are_refused_and_sampling_stays_off(kv, w, arguments, error, text):
    with pytest.raises(error, match=text):
        kv.enable_sampling(**arguments)
    with pytest.raises(godwit.WrongState, match="sampling is not enabled; call enable_sampling first"):
        w.prepare_sample(1)
    kv.enable_sampling()


def test_sampling_is_enabled_once(kv):
    kv.enable_sampling("pool")
    with pytest.raises(godwit.WrongState, match="sampling is enabled already, with the scheme 'pool'"):
        kv.enable_sampling("pool")


def test_bad_calls_are_refused_and_a_sample_keeps_its_keys(kv, w):
    kv.enable_sampling("preloc")
    keys, values = np.full(5, -1), np.full((5, 2), -1, np.float32)
    with pytest.raises(godwit.WrongState):
        kv.worker().prepare_sample(1)  # there are only two workers
    with pytest.raises(godwit.InvalidValue, match="n: -1 is below 0"):
        w.prepare_sample(-1)
    with pytest.raises(godwit.InvalidType, match="n: 'x' is no whole number"):
        w.prepare_sample("x")
    with pytest.raises(godwit.InvalidValue, match="end is 3; it must be after start, which is 3"):
        w.prepare_sample(1, 3, 3)
    with pytest.raises(godwit.InvalidValue, match="end: 3 was given without start"):
        w.prepare_sample(1, end=3)
    h = w.prepare_sample(5)
    for bad, error, text in (
            (lambda: w.pull_sample(h + 1, keys, values), godwit.InvalidValue, f"sample {h + 1} was not prepared by this worker"),
            (lambda: w.finish_sample(h + 1), godwit.InvalidValue, f"sample {h + 1} was not prepared"),
            (lambda: w.finish_sample("h"), godwit.InvalidType, "h: 'h' is no whole number"),
            (lambda: w.pull_sample(h, np.empty(6, np.int64), np.empty(12, np.float32)), godwit.InvalidValue,
             f"keys has 6 entries, but sample {h} has 5 left of its 5"),
            (lambda: w.pull_sample(h, keys, values[:4]), godwit.InvalidValue, "values has 8 entries, but 5 vectors of 2 need 10"),
            (lambda: w.pull_sample(h, keys.astype(np.int32), values), godwit.InvalidType, "keys"),
            (lambda: w.pull_sample(h, keys, values.astype(np.float64)), godwit.InvalidType, "values"),
            (lambda: w.pull_sample(h, keys[::2], values), godwit.InvalidValue, "keys"),
            (lambda: w.pull_sample(h, keys), godwit.InvalidType, "an argument is missing"),
            (lambda: w.pull_sample(h, keys, values, False, 1), godwit.InvalidType, "more than four arguments"),
            (lambda: w.pull_sample(h, keys, values, h=h), godwit.InvalidType, "given twice: h"),
            (lambda: w.pull_sample(h, keys, values, later=True), godwit.InvalidType, "there is no argument later")):
        with pytest.raises(error, match=text):
            bad()
    frozen = np.empty(5, np.int64)
    frozen.flags.writeable = False
    with pytest.raises(godwit.InvalidValue, match="keys"):
        w.pull_sample(h, frozen, values)
    shared = np.zeros(10, np.int64)
    with pytest.raises(godwit.InvalidValue, match="shares memory with keys"):
        w.pull_sample(h, shared[:5], shared.view(np.float32)[:10])
    assert (keys == -1).all() and (values == -1).all()
    w.pull_sample(h, keys, values)
    assert (keys >= 0).all()


def test_what_is_closed_says_so(kv, w):
    kv.enable_sampling()
    h = w.prepare_sample(5)
    w.close()
    for call in (lambda: w.prepare_sample(1), lambda: w.finish_sample(h),
                 lambda: w.pull_sample(h, np.empty(5, np.int64), np.empty((5, 2), np.float32))):
        with pytest.raises(godwit.WrongState, match="closed"):
            call()
    kv.close()
    with pytest.raises(godwit.WrongState, match="closed"):
        kv.enable_sampling()


def test_signatures_can_be_asked_for():
    assert str(inspect.signature(godwit.Parameters.enable_sampling)) == (
        "(self, /, scheme='preloc', distribution=None, weights=None, min=0, max=None, replacement=True, pool_size=250, "
        "reuse=16, seed=0)")
    assert str(inspect.signature(godwit.Worker.prepare_sample)) == "(self, /, n, start=None, end=None)"
    assert str(inspect.signature(godwit.Worker.pull_sample)) == "(self, /, h, keys, values, asynchronous=False)"
