"""godwit.nn.Embedding and godwit.optim in a world of one: steps against torch.optim, duplicates, first values, refusals."""

import doctest

import pytest

import godwit

torch = pytest.importorskip("torch")

N, DIM = 12, 3


@pytest.fixture(scope="module", autouse=True)
def world():
    godwit.init()
    yield
    godwit.close()


@pytest.fixture
def make():
    """Embeddings of float64 rows, each with parameters of its own."""
    opened = []

    def make(optimizer, n=N, dim=DIM, **more):
        kv = godwit.Parameters(n + 2, optimizer.length(dim), dtype="float64")
        worker = kv.worker()
        opened.extend((worker, kv))
        return godwit.nn.Embedding(kv, n, dim, worker=worker, optimizer=optimizer, **more)

    yield make
    for one in opened:
        one.close()


# One parameter for each row, with an optimizer of its own that is stepped when the row is used.
PAIRS = {
    "SGD": (lambda o: o.SGD(lr=0.3), lambda p: torch.optim.SGD(p, lr=0.3)),
    "SGD with decay": (lambda o: o.SGD(lr=0.3, weight_decay=0.1),
                       lambda p: torch.optim.SGD(p, lr=0.3, weight_decay=0.1)),
    "Adagrad": (lambda o: o.Adagrad(lr=0.2), lambda p: torch.optim.Adagrad(p, lr=0.2)),
    "Adagrad that begins higher": (
        lambda o: o.Adagrad(lr=0.2, eps=1e-3, initial_accumulator_value=0.5, weight_decay=0.01),
        lambda p: torch.optim.Adagrad(p, lr=0.2, eps=1e-3, initial_accumulator_value=0.5, weight_decay=0.01)),
    "Adam": (lambda o: o.Adam(lr=0.05), lambda p: torch.optim.Adam(p, lr=0.05)),
    "Adam with decay": (lambda o: o.Adam(lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.02),
                        lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.02)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_rows_change_as_torch_optim_changes_them(name, make):
    ours, theirs = PAIRS[name]
    embedding = make(ours(godwit.optim))
    embedding.reset(seed=5)
    rows = [row.clone().requires_grad_() for row in embedding.read(torch.arange(N))]
    optimizers = [theirs([row]) for row in rows]
    chance = torch.Generator().manual_seed(1)
    for _ in range(50):
        ids = torch.randint(N, (2, 4), generator=chance)  # duplicates happen
        target = torch.randn(2, 4, DIM, generator=chance, dtype=torch.float64)
        ((embedding(ids) - target) ** 2).sum().backward()
        for optimizer in optimizers:
            optimizer.zero_grad()
        ((torch.stack([rows[i] for i in ids.flatten().tolist()]).view(2, 4, DIM) - target) ** 2).sum().backward()
        for i in set(ids.flatten().tolist()):
            optimizers[i].step()
    assert torch.allclose(embedding.read(torch.arange(N)), torch.stack(rows), rtol=0, atol=1e-12)


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("this pass fails")


def test_a_pass_that_failed_does_not_spoil_the_next(make):
    embedding = make(godwit.optim.SGD(lr=1.0))
    embedding.reset(seed=3)
    before = embedding.read(torch.arange(N))
    fails = Fails.apply(embedding(torch.tensor([2])))
    with pytest.raises(RuntimeError, match="this pass fails"):
        (fails + embedding(torch.tensor([1]))).sum().backward()  # what was made last comes first: row 1, then the failure
    assert torch.equal(embedding.read(torch.arange(N)), before)
    embedding(torch.tensor([4])).sum().backward()
    after = embedding.read(torch.arange(N))
    assert (after - before).ne(0).any(1).nonzero().flatten().tolist() == [4]


def test_a_batch_without_rows_changes_nothing(make):
    embedding = make(godwit.optim.Adagrad(lr=0.5))
    embedding.reset(seed=3)
    before = embedding.read(torch.arange(N))
    nothing = embedding(torch.empty(2, 0, dtype=torch.int64))
    assert nothing.shape == (2, 0, DIM)
    nothing.sum().backward()
    (embedding(torch.empty(0, dtype=torch.int32)).sum() + 0 * embedding(torch.tensor([1])).sum()).backward()
    assert torch.equal(embedding.read(torch.arange(N)), before)


def test_look_ups_that_live_at_the_same_time_have_rows_of_their_own(make):
    """A pass may run twice over what was looked up once, with other look-ups between."""
    embedding = make(godwit.optim.Adagrad(lr=0.5))
    embedding.reset(seed=3)
    mirror = embedding.read(torch.arange(N)).clone()
    first = embedding(torch.tensor([1, 2]))
    for i in range(6):
        embedding(torch.tensor([3 + i, 3 + i, 4])).sum()  # without a backward pass: given back at once
    for _ in range(2):
        first.sum().backward(retain_graph=True)  # both from the rows as they were looked up
        mirror[[1, 2]] -= 0.5  # the first step of Adagrad, twice
    assert torch.allclose(embedding.read(torch.arange(N)), mirror, rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_added_up_as_index_add_does(dtype):
    chance = torch.Generator().manual_seed(7)
    parts, expected, first = [], torch.zeros(40, 5, dtype=torch.float64), {}
    for n in (30, 1, 25, 0):
        ids = torch.randint(40, (n,), generator=chance)
        keys, which = torch.empty_like(ids), torch.empty_like(ids)
        n_keys = godwit._native.rows_once(ids, 100, 40, keys, which)
        assert keys[:n_keys].tolist() == list(dict.fromkeys((ids + 100).tolist()))  # in order of first use
        assert torch.equal(keys[which] - 100, ids)
        rows, gradient = torch.randn(n_keys, 7, dtype=dtype, generator=chance), torch.randn(n, 5, dtype=dtype, generator=chance)
        expected.index_add_(0, ids, gradient.double())
        for key, row in zip(keys[:n_keys].tolist(), rows):
            first.setdefault(key, row)
        parts.append((keys[:n_keys], which, rows, gradient))
    most = sum(len(part[0]) for part in parts)
    keys, rows, sums = torch.empty(most, dtype=torch.int64), torch.empty(most, 7, dtype=dtype), torch.empty(most, 5, dtype=dtype)
    n = godwit._native.rows_add_up(parts, 0, keys, rows, sums)
    assert keys[:n].tolist() == list(first)
    assert torch.equal(rows[:n], torch.stack(list(first.values())))
    assert torch.allclose(sums[:n].double(), expected[keys[:n] - 100], rtol=0, atol=1e-5)
    again = torch.zeros_like(rows)
    assert godwit._native.rows_add_up(parts, 5, keys, again, sums) == n
    assert torch.equal(again[:n, 5:], rows[:n, 5:]) and not again[:, :5].any()
    with pytest.raises(godwit.OutOfRange, match="skipped: 8, of rows of 7 entries"):
        godwit._native.rows_add_up(parts, 8, keys, rows, sums)
    with pytest.raises(godwit.InvalidValue, match="too few"):
        godwit._native.rows_add_up(parts, 0, keys[:3], rows[:3], sums[:3])
    with pytest.raises(godwit.OutOfRange, match="which: 9, of 2 rows"):
        godwit._native.rows_add_up([(keys[:2], torch.tensor([9]), rows[:2], sums[:1])], 0, keys, rows, sums)
    with pytest.raises(godwit.InvalidValue, match="do not go with 2 keys"):
        godwit._native.rows_add_up([(keys[:2], None, rows[:3], sums[:2])], 0, keys, rows, sums)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64])
def test_ids_that_are_no_integers_are_refused(make, dtype):
    embedding = make(godwit.optim.SGD(lr=1.0))
    with pytest.raises(TypeError, match=f"ids: they are {dtype}"):
        embedding(torch.ones(2, dtype=dtype))


def test_what_is_looked_up_several_times_in_a_pass_is_stepped_once(make):
    optimizer = godwit.optim.Adagrad(lr=1.0)
    once, often = make(optimizer), make(optimizer)
    for embedding in (once, often):
        embedding.reset(seed=3)
    once(torch.tensor([1, 1, 2])).sum().backward()
    (often(torch.tensor([1])).sum() + often(torch.tensor([2, 1])).sum()).backward()
    assert torch.equal(once.read(torch.arange(N)), often.read(torch.arange(N)))


def test_embeddings_that_share_a_worker_have_rows_of_their_own():
    optimizer = godwit.optim.SGD(lr=1.0)
    with godwit.Parameters(10, [2] * 4 + [3] * 6) as kv, kv.worker() as worker:
        a = godwit.nn.Embedding(kv, 4, 2, worker=worker, optimizer=optimizer)
        b = godwit.nn.Embedding(kv, 6, 3, worker=worker, optimizer=optimizer, first_key=4)
        (a(torch.tensor([0, 3])).sum() + 2 * b(torch.tensor([0, 5])).sum()).backward()
        assert a.read(torch.arange(4))[:, 0].tolist() == [-1, 0, 0, -1]
        assert b.read(torch.arange(6))[:, 0].tolist() == [-2, 0, 0, 0, 0, -2]


def test_any_shape_of_ids_and_any_whole_type_is_fine(make):
    embedding = make(godwit.optim.SGD(lr=1.0))
    assert embedding(torch.tensor(3)).shape == (DIM,)
    assert embedding(torch.zeros(2, 0, 5, dtype=torch.int64)).shape == (2, 0, 5, DIM)
    assert embedding(torch.arange(6, dtype=torch.int32).view(2, 3).T).shape == (3, 2, DIM)


def test_without_gradients_nothing_is_pushed(make):
    embedding = make(godwit.optim.SGD(lr=1.0))
    with torch.no_grad():
        assert not embedding(torch.tensor([1])).requires_grad
    embedding(torch.tensor([1]))  # its gradient is never asked for
    assert embedding.read(torch.arange(N)).abs().sum() == 0


def test_two_passes_through_one_graph_push_twice(make):
    embedding = make(godwit.optim.SGD(lr=1.0))
    loss = embedding(torch.tensor([1])).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert embedding.read(torch.tensor([1]))[0, 0] == -2


def test_first_values_are_the_same_for_any_number_of_parts(make):
    optimizer = godwit.optim.Adagrad(lr=1.0, initial_accumulator_value=0.25)
    whole, parted, other = (make(optimizer, n=5000) for _ in range(3))
    whole.reset(seed=9)
    for part in (2, 0, 1):
        parted.reset(seed=9, part=part, parts=3)
    other.reset(seed=10)
    everything = torch.arange(5000)
    assert torch.equal(whole.read(everything), parted.read(everything))
    assert not torch.equal(whole.read(everything), other.read(everything))
    assert abs(whole.read(everything).std() - DIM**-0.5) < 0.02
    rows = torch.empty(5000, whole.length, dtype=torch.float64)
    whole.worker.pull(everything + whole.first_key, rows)
    assert (rows[:, DIM:] == 0.25).all()


def test_first_values_can_be_given_by_a_function(make):
    embedding = make(godwit.optim.SGD(lr=1.0))
    embedding.reset(lambda rows, chance: rows.fill_(2))
    assert (embedding.read(torch.arange(N)) == 2).all()


def test_a_wrong_id_is_refused_and_named(make):
    embedding = make(godwit.optim.SGD(lr=1.0))
    for ids in ([0, N], [-1, 2]):
        with pytest.raises(IndexError, match=rf"ids: {ids[0] if ids[0] < 0 else N} is no row; they go from 0 to {N - 1}"):
            embedding(torch.tensor(ids))


def test_what_does_not_fit_is_refused(make):
    optimizer = godwit.optim.Adam()
    with godwit.Parameters(10, 4) as kv, kv.worker() as worker:
        with pytest.raises(ValueError, match=r"key 0 has 4 entries; Adam with embedding_dim=4 needs 13"):
            godwit.nn.Embedding(kv, 10, 4, worker=worker, optimizer=optimizer)
        with pytest.raises(ValueError, match=r"rows 5 to 14: the parameters have keys 0 to 9"):
            godwit.nn.Embedding(kv, 10, 1, worker=worker, optimizer=optimizer, first_key=5)
        with pytest.raises(ValueError, match=r"an embedding of 0 rows of 1; both must be 1 or more"):
            godwit.nn.Embedding(kv, 0, 1, worker=worker, optimizer=optimizer)
    embedding = make(godwit.optim.SGD(lr=1.0))
    with pytest.raises(ValueError, match="part 3 of 3"):
        embedding.reset(part=3, parts=3)


@pytest.mark.parametrize("call, message", [
    (lambda: godwit.optim.SGD(lr=-1), "lr: -1; it must be at least 0"),
    (lambda: godwit.optim.SGD(lr=float("nan")), "lr: nan"),
    (lambda: godwit.optim.Adam(betas=(1, 0.9)), r"betas\[0\]: 1; it must be from 0 to less than 1"),
    (lambda: godwit.optim.by_name("adamw"), "optimizer: 'adamw' is none of sgd, adagrad, adam"),
])
def test_options_that_make_no_sense_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_samples_are_rows_with_gradients(make):
    embedding = make(godwit.optim.SGD(lr=1.0))
    kv_sampling(embedding)
    handle = embedding.worker.prepare_sample(40)
    ids, rows = embedding.sample(handle, 40)
    assert rows.shape == (40, DIM) and 0 <= ids.min() and ids.max() < N
    rows.sum().backward()
    counts = torch.bincount(ids, minlength=N)
    assert torch.equal(embedding.read(torch.arange(N))[:, 0], -counts.double())


def kv_sampling(embedding):
    embedding.params.enable_sampling(scheme="naive", max=N, seed=1)


def test_the_examples_in_docstrings_hold():
    import godwit.nn.embedding
    import godwit.show
    import godwit.training

    for module in (godwit.nn.embedding, godwit.optim, godwit.show, godwit.training):
        names = {"godwit": godwit, "torch": torch, **vars(module)}
        assert doctest.testmod(module, extraglobs=names, optionflags=doctest.ELLIPSIS).failed == 0
