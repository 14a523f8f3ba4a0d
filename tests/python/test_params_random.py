"""Random calls of a worker: good ones do what a NumPy model does, bad ones are refused whole and change nothing."""

import pytest

import godwit

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
hypothesis = pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

N = 40
LENGTHS = {"equal": [3] * N, "mixed": [key * key % 7 + 1 for key in range(N)]}
DTYPES = {"float32": np.float32, "float64": np.float64}
KINDS = {godwit.OutOfRange: IndexError, godwit.InvalidValue: ValueError, godwit.InvalidType: TypeError,
         godwit.WrongState: RuntimeError}
NAMES = {"pull": "values", "push": "updates", "set": "values"}

OPTIONS = dict(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)


class Store:
    """Parameters, a worker, and a NumPy array for each key that says what its vector must be."""

    def __init__(self, lengths, dtype):
        self.lengths, self.dtype = LENGTHS[lengths], np.dtype(DTYPES[dtype])
        self.kv = godwit.Parameters(N, LENGTHS[lengths][0] if lengths == "equal" else LENGTHS[lengths], dtype, workers=2)
        self.worker, self.closed = self.kv.worker(), self.kv.worker()
        self.closed.close()
        with godwit.Parameters(N, 3, dtype) as other:
            self.of_closed = other.worker()
        self.model = [np.zeros(length, self.dtype) for length in self.lengths]

    def size(self, keys):
        return sum(self.lengths[key] for key in keys)

    def everything(self):
        values = np.empty(self.size(range(N)), self.dtype)
        self.worker.pull(np.arange(N), values)
        return values

    def expected(self, keys):
        return np.concatenate([self.model[key] for key in keys] or [np.empty(0, self.dtype)])

    def change(self, name, keys, values):
        at = 0
        for key in keys:
            part = values[at:at + self.lengths[key]]
            self.model[key] = part.copy() if name == "set" else self.model[key] + part
            at += self.lengths[key]

    def moved(self):
        return {name: value for name, value in self.kv.stats().items() if name in ("calls", "keys_pushed", "keys_set")}


@pytest.fixture(scope="module")
def stores():
    godwit.init()
    made = {(lengths, dtype): Store(lengths, dtype) for lengths in LENGTHS for dtype in DTYPES}
    yield made
    for store in made.values():
        store.kv.close()
    godwit.close()


# ---- what calls are made of ----------------------------------------------------------------------

keys_of_all_kinds = st.lists(st.integers(0, N - 1), max_size=30)
whole_numbers = st.integers(-1000, 1000)  # sums of them are exact in either type


def as_array(draw, array):
    """The same as a tensor or as an array, in a random shape."""
    n = array.size
    rows = draw(st.sampled_from([divisor for divisor in range(1, n + 1) if n % divisor == 0] or [1]))
    array = array.reshape(draw(st.sampled_from([(n,), (rows, n // rows), (1, n, 1)])))
    return torch.from_numpy(array) if draw(st.booleans()) else array


def as_keys(draw, keys):
    return as_array(draw, np.array(keys, draw(st.sampled_from([np.int64, np.int32]))))


def call(worker, name, keys, values, way):
    """The same call, spelled in different ways."""
    method = getattr(worker, name)
    if way == 0:
        return method(keys, values)
    if way == 1:
        return method(keys, values, True)
    return method(asynchronous=way == 2, **{NAMES[name]: values, "keys": keys})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", LENGTHS)
@settings(max_examples=150, **OPTIONS)
@given(data=st.data())
def test_good_calls_do_what_the_model_does(stores, lengths, dtype, data):
    store, draw = stores[lengths, dtype], data.draw
    for _ in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from(["pull", "push", "set"]))
        keys = draw(keys_of_all_kinds)
        n = store.size(keys)
        numbers = draw(st.lists(whole_numbers, min_size=min(n, 20), max_size=min(n, 20)))
        plain = np.resize(np.array(numbers, store.dtype), n) if n else np.empty(0, store.dtype)
        values = as_array(draw, plain.copy())
        assert call(store.worker, name, as_keys(draw, keys), values, draw(st.integers(0, 3))) == -1
        if name == "pull":
            assert np.array_equal(np.asarray(values).reshape(-1), store.expected(keys))
        else:
            assert np.array_equal(np.asarray(values).reshape(-1), plain), "what was given was changed"
            store.change(name, keys, plain)
    assert np.array_equal(store.everything(), store.expected(range(N)))


# ---- defects -------------------------------------------------------------------------------------


class Bad:
    """A call that is fine until a defect is put into it."""

    def __init__(self, draw, store):
        self.draw, self.store = draw, store
        self.worker = store.worker
        self.name = draw(st.sampled_from(["pull", "push", "set"]))
        self.keys = np.array(draw(st.lists(st.integers(0, N - 1), min_size=1, max_size=20)), np.int64)
        self.values = np.arange(1, store.size(self.keys) + 1).astype(store.dtype)

    @property
    def argument(self):
        return NAMES[self.name]


def key_out_of_range(bad):
    at = bad.draw(st.integers(0, bad.keys.size - 1))
    far = st.sampled_from([-1, N, N + 1, -N, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**32, 2**32 + 1])
    key = bad.draw(far | st.integers(N, 2**63 - 1) | st.integers(-(2**63), -1))
    bad.keys[at] = key
    if -(2**31) <= key < 2**31 and bad.draw(st.booleans()):
        bad.keys = bad.keys.astype(np.int32)
    bad.keys, bad.values = as_array(bad.draw, bad.keys), as_array(bad.draw, bad.values)
    return godwit.OutOfRange, f"keys[{at}] is {key};"


def wrong_number_of_values(bad):
    n = bad.values.size
    other = bad.draw(st.integers(0, 2 * n).filter(lambda other: other != n))
    bad.values = as_array(bad.draw, np.resize(bad.values, other))
    return godwit.InvalidValue, f"{bad.argument} has {other} entries, but the vectors of these {bad.keys.size} keys have {n}"


def wrong_dtype_of_values(bad):
    kinds = [np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, bool, np.complex64]
    kind = bad.draw(st.sampled_from([kind for kind in kinds if kind != bad.store.dtype]))
    bad.values = as_array(bad.draw, bad.values.astype(kind))
    return godwit.InvalidType, f"{bad.argument}: its entries are {np.dtype(kind).name}"


def wrong_dtype_of_keys(bad):
    kind = bad.draw(st.sampled_from([np.float32, np.float64, np.int16, np.int8, np.uint8, bool]))
    bad.keys = as_array(bad.draw, bad.keys.astype(kind))
    return godwit.InvalidType, f"keys: its entries are {np.dtype(kind).name}"


def unknown_dtype(bad):
    kind = bad.draw(st.sampled_from(["O", "S4", "datetime64[s]"]))
    which = bad.draw(st.sampled_from(["keys", "values"]))
    setattr(bad, which, np.zeros(getattr(bad, which).size, kind))
    return godwit.InvalidType, "keys: " if which == "keys" else f"{bad.argument}: "


def bytes_in_the_other_order(bad):
    which = bad.draw(st.sampled_from(["keys", "values"]))
    array = getattr(bad, which)
    setattr(bad, which, array.astype(array.dtype.newbyteorder()))
    return godwit.InvalidType, "keys: " if which == "keys" else f"{bad.argument}: "


def not_contiguous(bad):
    which = bad.draw(st.sampled_from(["keys", "values"]))
    bad.keys = np.append(bad.keys, bad.keys)  # of a single entry it means nothing
    bad.values = np.append(bad.values, bad.values)
    array = getattr(bad, which)
    step = bad.draw(st.sampled_from([2, 3, -1]))
    wide = np.zeros(array.size * abs(step), array.dtype)[::step]
    wide[:] = array
    torch_can = step > 0 and bad.draw(st.booleans())
    setattr(bad, which, torch.from_numpy(wide) if torch_can else wide)
    return godwit.InvalidValue, ("keys" if which == "keys" else bad.argument) + ": it is not contiguous"


def read_only(bad):
    bad.name = "pull"
    bad.values.flags.writeable = False
    return godwit.InvalidValue, "values: it is to be written to, but is read-only"


def all_entries_in_one_place(bad):
    bad.name = "pull"
    bad.keys = np.append(bad.keys, bad.keys)
    bad.values = torch.zeros(1, dtype=torch.from_numpy(bad.values).dtype).expand(2 * bad.values.size)
    return godwit.InvalidValue, "values: "


def requires_gradient(bad):
    bad.name = "pull"
    bad.values = torch.from_numpy(bad.values).requires_grad_()
    if bad.draw(st.booleans()):
        bad.values = torch.nn.Parameter(bad.values.detach())
    return godwit.InvalidValue, "values: it requires a gradient"


def no_tensor(bad):
    which = bad.draw(st.sampled_from(["keys", "values"]))
    array = getattr(bad, which)
    setattr(bad, which, bad.draw(st.sampled_from([None, 7, 0.5, "text", array.tolist(), object(), type(array), {}])))
    return godwit.InvalidType, "keys: " if which == "keys" else f"{bad.argument}: "


def sparse_or_without_memory(bad):
    which = bad.draw(st.sampled_from(["keys", "values"]))
    tensor = torch.from_numpy(getattr(bad, which))
    setattr(bad, which, tensor.to_sparse() if bad.draw(st.booleans()) else torch.empty_like(tensor, device="meta"))
    return godwit.InvalidType, "keys: " if which == "keys" else f"{bad.argument}: "


def too_many_axes(bad):
    which = bad.draw(st.sampled_from(["keys", "values"]))
    array = getattr(bad, which)
    array = array.reshape([1] * 8 + [array.size])
    setattr(bad, which, torch.from_numpy(array) if bad.draw(st.booleans()) else array)
    return godwit.InvalidValue, ("keys" if which == "keys" else bad.argument) + ": it has 9 dimensions"


def closed_worker(bad):
    bad.worker = bad.store.closed
    return godwit.WrongState, "this worker is closed"


def closed_parameters(bad):
    bad.worker = bad.store.of_closed
    return godwit.WrongState, "these parameters are closed"


DEFECTS = [key_out_of_range, wrong_number_of_values, wrong_dtype_of_values, wrong_dtype_of_keys, unknown_dtype,
           bytes_in_the_other_order, not_contiguous, read_only, all_entries_in_one_place, requires_gradient, no_tensor,
           sparse_or_without_memory, too_many_axes, closed_worker, closed_parameters]


def content(thing):
    """What an argument holds, to see whether it was changed."""
    if isinstance(thing, torch.Tensor):
        return None if thing.is_sparse or thing.device.type == "meta" else thing.detach().clone().numpy().tobytes()
    return thing.tobytes() if isinstance(thing, np.ndarray) else None


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
@settings(max_examples=60, **OPTIONS)
@given(data=st.data())
def test_bad_calls_are_refused_whole_with_the_argument_named(stores, defect, data):
    store = stores[data.draw(st.sampled_from(sorted(stores)))]
    bad = Bad(data.draw, store)
    kind, words = defect(bad)
    before, moved, held = store.everything(), store.moved(), (content(bad.keys), content(bad.values))
    moved["calls"] += 1  # of everything()
    with pytest.raises(kind) as caught:
        call(bad.worker, bad.name, bad.keys, bad.values, data.draw(st.integers(0, 3)))
    assert isinstance(caught.value, godwit.Error) and isinstance(caught.value, KINDS[kind])
    assert words in str(caught.value), str(caught.value)
    assert (content(bad.keys), content(bad.values)) == held, "an argument was changed"
    assert np.array_equal(store.everything(), before), "a vector was changed"
    assert store.moved() == moved


@settings(max_examples=60, **OPTIONS)
@given(data=st.data())
def test_is_local_refuses_the_same_keys(stores, data):
    store = stores[data.draw(st.sampled_from(sorted(stores)))]
    bad = Bad(data.draw, store)
    kind, words = data.draw(st.sampled_from([key_out_of_range, wrong_dtype_of_keys]))(bad)
    with pytest.raises(kind) as caught:
        store.worker.is_local(bad.keys)
    assert words in str(caught.value)
