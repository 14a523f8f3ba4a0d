"""godwit.memory in one process: what calls give, and what they refuse."""

from __future__ import annotations

import gc
import os
import pickle

import numpy as np
import pytest
import torch

import godwit
from godwit import memory


@pytest.fixture(params=memory.KINDS)
def kind(request):
    return request.param


@pytest.fixture
def table(kind):
    with memory.empty((10, 3), torch.float32, kind) as t:
        t.local[:] = torch.arange(30.0).reshape(10, 3)
        yield t


def test_it_looks_like_a_tensor(table, kind):
    assert table.shape == (10, 3) and table.dtype is torch.float32 and table.kind == kind and table.ndim == 2
    assert tuple(table.stride) == (3, 1) and table.stride() == (3, 1) and table.stride(0) == 3 and len(table) == 10
    assert table.local_start == 0 and table.rows_per_rank == [10] and table.part(0) == (0, 10)
    assert "10 x 3 float32" in repr(table) and kind in repr(table)
    assert table.get_ptr() == table.local.data_ptr() == table.get_ptr(0)


def test_gather_takes_tensors_arrays_and_lists_of_any_shape(table):
    expected = torch.arange(30.0).reshape(10, 3)
    for indices in ([1, 9], np.array([1, 9], np.int32), torch.tensor([1, 9]), range(1, 10, 8), (1, 9)):
        assert torch.equal(table.gather(indices), expected[[1, 9]])
    assert torch.equal(table.gather([[1, 2], [3, 3]]), expected[torch.tensor([[1, 2], [3, 3]])])
    assert table.gather([]).shape == (0, 3)
    out = np.zeros((2, 3), np.float64)
    assert table.gather([4, 5], out=out) is out and np.array_equal(out, expected[[4, 5]].numpy())
    assert table.gather([2], dtype=torch.int64).tolist() == [[6, 7, 8]]


def test_brackets_are_rows_or_views(table):
    assert table[3].tolist() == [9, 10, 11] and table[-1].tolist() == [27, 28, 29]
    assert table[[0, 2]].shape == (2, 3) and table[torch.tensor([0, 2])].shape == (2, 3)
    view = table[2:5, 1:]
    assert view.shape == (3, 2) and view.gather([0]).tolist() == [[7, 8]] and tuple(view.stride) == (3, 1)
    view.scatter(-1.0, [0])
    assert table[2].tolist() == [6, -1, -1]
    table[4] = [1, 2, 3]
    assert table[4].tolist() == [1, 2, 3]
    with pytest.raises(godwit.Unsupported):
        table[::2]
    with pytest.raises(godwit.Unsupported):
        table[1:2] = 0


def test_views_are_the_same_bytes(table, kind):
    table.local[5] = 7.0
    assert (table.gather([5]) == 7).all() and (table.chunk(0)[5] == 7).all()
    if kind == "continuous":
        assert table.torch().data_ptr() == table.local.data_ptr()
        table.numpy()[6] = 8
        assert (table.gather([6]) == 8).all()
    else:
        with pytest.raises(godwit.Unsupported, match=kind):
            table.torch()


@pytest.mark.parametrize("indices, error, words", [
    ([0, 10], IndexError, r"indices\[1\] is 10; rows go from 0 to 9"), ([-1], IndexError, r"indices\[0\] is -1"),
    ([0.5], TypeError, "indices"), (torch.tensor([True]), TypeError, "bool")])
def test_bad_indices_are_refused_and_nothing_changes(table, indices, error, words):
    before = table.local.clone()
    for call in (lambda: table.gather(indices), lambda: table.scatter(1.0, indices), lambda: table.scatter_add(1.0, indices)):
        with pytest.raises(error, match=words):
            call()
    assert torch.equal(table.local, before)


def test_buffers_of_the_wrong_size_are_refused(table):
    with pytest.raises(ValueError, match="out: it has 6 entries; 3 rows of 3 entries need 9"):
        table.gather([1, 2, 3], out=torch.empty(2, 3))
    with pytest.raises(ValueError, match="values"):
        table.scatter(torch.ones(2, 2), [1, 2])
    with pytest.raises(ValueError):
        table.gather([1], out=torch.empty(3, 2).T[:1])


def test_duplicates_all_count_and_the_last_one_stays(table):
    table.scatter_add(torch.ones(3, 3), [1, 1, 2])
    assert table[1].tolist() == [5, 6, 7] and table[2].tolist() == [7, 8, 9]
    table.scatter(torch.tensor([[1.0], [2.0]]).expand(2, 3), [1, 1])
    assert table[1].tolist() == [2, 2, 2]


def test_gradients_are_added_to_the_rows(table):
    assert not table.requires_grad
    table.requires_grad_()
    rows = table.gather(torch.tensor([1, 1, 4]))
    assert rows.requires_grad
    (rows * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    expected = torch.zeros(10, 3)
    expected[1], expected[4] = torch.tensor([2.0, 4.0, 6.0]), torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(table.grad.local, expected)
    with torch.no_grad():
        assert not table.gather([1]).requires_grad
    with pytest.raises(ValueError, match="out"):
        table.gather([1], out=torch.empty(1, 3))
    table.requires_grad_(False)
    assert table.grad is None and not table.gather([1]).requires_grad


@pytest.mark.parametrize("arguments, error, words", [
    (((3, -1),), ValueError, r"shape\[1\] is -1"), (((),), ValueError, "dimensions"), (((3, 2), torch.quint8), TypeError, "dtype"),
    (((3, 2), torch.float32, "other"), ValueError, "continuous, chunked, distributed"), (((2**62, 2**20),), ValueError, "addresses"),
    (((3, 2), torch.float32, "chunked", None, [2]), ValueError, "rows_per_rank"),
    (((3, 2), torch.float32, "chunked", None, [1, 2]), ValueError, "2 entries"), (((3, "a"),), TypeError, "shape")])
def test_bad_arguments_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        memory.empty(*arguments)


def test_rows_may_lie_apart_but_are_dense():
    with memory.empty((4, 3), strides=(8, 1)) as t:
        assert t.torch().stride() == (8, 1)
        t.scatter(torch.ones(4, 3), range(4))
        assert t.torch().sum() == 12
    with pytest.raises(godwit.Unsupported, match="dense"):
        memory.empty((4, 3), strides=(1, 4))


def test_views_outlive_the_close_and_the_rest_says_that_it_is_closed(kind):
    t = memory.zeros((1000, 100), kind=kind)
    view = t.local
    t.close()
    assert t.closed and "closed" in repr(t)
    view[:] = 3.0
    assert view.sum() == 300_000
    for call in (lambda: t.gather([0]), lambda: t.local, lambda: t.fill_(1)):
        with pytest.raises(godwit.WrongState, match="closed"):
            call()
    t.close()
    del view
    gc.collect()


def test_closed_memory_goes_back_to_the_system():
    def shared() -> int:
        return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssShmem:"))

    godwit.init()
    before = shared()
    for _ in range(4):
        with memory.zeros((100_000, 64)) as t:
            t.torch().fill_(1)
    assert shared() - before < 2 * 25_000


def test_a_forked_child_reads_and_writes_in_place(table):
    child = os.fork()
    if child == 0:
        ok = table.gather([3])[0, 0].item() == 9
        table.scatter_add(torch.ones(1, 3), [3])
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert table[3].tolist() == [10, 11, 12]


def test_files_are_numpys_own(tmp_path, table):
    table.save(tmp_path / "x.npy")
    assert np.array_equal(np.load(tmp_path / "x.npy"), table.local.numpy())
    np.save(tmp_path / "y.npy", np.arange(12, dtype=np.int16).reshape(3, 2, 2))
    with memory.from_file(tmp_path / "y.npy") as y:
        assert y.dtype is torch.int16 and y.shape == (3, 2, 2) and y[2].tolist() == [[8, 9], [10, 11]]
    assert table.save(tmp_path / "x.raw", parts=True) == [str(tmp_path / "x.raw.part-0-of-1")]
    with memory.from_file(str(tmp_path / "x.raw.part-0-of-1"), torch.float32, 3) as x:
        assert torch.equal(x.torch(), table.local)
    with pytest.raises(ValueError, match="dtype"):
        memory.from_file(tmp_path / "x.raw.part-0-of-1")
    with pytest.raises(OSError, match="none.npy"):
        memory.from_file(tmp_path / "none.npy")
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr':")
    with pytest.raises(ValueError, match="bad.npy"):
        memory.from_file(tmp_path / "bad.npy")


def test_it_cannot_be_pickled_and_says_what_to_do(table):
    with pytest.raises(godwit.WrongState, match="save"):
        pickle.dumps(table)


def test_half_types_and_copies_between_types():
    with memory.empty((5, 4), torch.bfloat16) as a, memory.empty((5, 4), torch.float16, "chunked") as b:
        a.fill_(1.5)
        b.copy_(a)
        assert (b.local == 1.5).all()
        b.scatter_add(torch.full((2, 4), 0.25), [0, 0])
        assert b[0].tolist() == [2.0] * 4
        with pytest.raises(ValueError, match="entries along dimension 0"):
            with memory.empty((6, 4)) as c:
                c.copy_(a)
