"""A program: what the functions of godwit.comm give, in values and in gradients, checked on every rank.

The functions in CHECKS say by their names what they check.  Prints "passed NAME"
from each rank.
"""

from __future__ import annotations

import gc
import inspect
import sys
import warnings
import weakref

import torch
from torch import Tensor

import godwit
from godwit.comm import (ANY_SOURCE, ANY_TAG, COMM_WORLD, JoinDummies, JoinDummiesHandle, MPI_BAND, MPI_BOR, MPI_BXOR,
                         MPI_LAND, MPI_LOR, MPI_LXOR, MPI_MAX, MPI_MAXLOC, MPI_MIN, MPI_MINLOC, MPI_PROD, MPI_SUM)

try:
    import numpy as np
except ImportError:
    np = None

comm = COMM_WORLD
rank, size = comm.rank, comm.size
last = size - 1
right, left = (rank + 1) % size, (rank - 1) % size

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
REALS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]


def of_rank(r: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    """Small whole numbers, so that no type rounds; every rank can make those of every other."""
    generator = torch.Generator().manual_seed(1000 + r)
    numbers = torch.randint(0, 4, shape, generator=generator)
    if dtype in COMPLEX:
        return torch.complex(numbers.double(), numbers.double() - 1).to(dtype)
    return numbers.to(dtype)


def of_all(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [of_rank(r, shape, dtype) for r in range(size)]


def raises(kind: type[BaseException], call, *words: str) -> None:
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"no {kind.__name__}")


def same(a: Tensor, b: Tensor) -> None:
    assert a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b), (a, b)


# ---- values ---------------------------------------------------------------------------------------


def reference(xs: list[Tensor], op: int) -> Tensor:
    """All tensors combined, one after the other."""
    combine = {
        MPI_MAX: torch.maximum, MPI_MIN: torch.minimum, MPI_SUM: torch.add, MPI_PROD: torch.mul,
        MPI_LAND: torch.logical_and, MPI_LOR: torch.logical_or, MPI_LXOR: torch.logical_xor,
        MPI_BAND: torch.bitwise_and, MPI_BOR: torch.bitwise_or, MPI_BXOR: torch.bitwise_xor,
    }[op]
    dtype = xs[0].dtype
    half = dtype in (torch.float16, torch.bfloat16)
    total = xs[0].float() if half else xs[0]
    for x in xs[1:]:
        total = combine(total, x.float() if half else x)
    return total.to(dtype)


def every_operation_combines_every_type_it_makes_sense_for():
    numeric = [MPI_SUM, MPI_PROD]
    ordered = [MPI_MAX, MPI_MIN]
    bits = [MPI_BAND, MPI_BOR, MPI_BXOR]
    for dtype in INTEGERS + REALS + COMPLEX:
        allowed = numeric + (ordered if dtype not in COMPLEX else []) + (bits if dtype in INTEGERS else [])
        for op in allowed:
            xs = of_all((3, 5), dtype)
            same(comm.Allreduce(xs[rank], op), reference(xs, op))
            same(comm.Scan(xs[rank], op), reference(xs[:rank + 1], op))
            reduced = comm.Reduce_(xs[rank].clone(), op, last)
            same(reduced, reference(xs, op) if rank == last else torch.zeros_like(xs[0]))
    for op in (MPI_LAND, MPI_LOR, MPI_LXOR):
        xs = of_all((7,), torch.bool)
        same(comm.Allreduce(xs[rank], op), reference(xs, op))


def pairs_keep_the_index_of_the_extremum():
    pairs = torch.tensor([[float(rank), rank], [-float(rank), rank], [1.0, rank]])
    same(comm.Allreduce(pairs, MPI_MAXLOC), torch.tensor([[float(last), last], [0.0, 0], [1.0, 0]]))
    same(comm.Allreduce(pairs, MPI_MINLOC), torch.tensor([[0.0, 0], [-float(last), last], [1.0, 0]]))


def operations_that_make_no_sense_for_a_type_are_refused():
    raises(godwit.Unsupported, lambda: comm.Allreduce(torch.zeros(2, dtype=torch.complex64), MPI_MAX), "MAX")
    raises(godwit.Unsupported, lambda: comm.Allreduce(torch.zeros(2), MPI_BAND), "BAND")
    raises(godwit.OutOfRange, lambda: comm.Allreduce(torch.zeros(2), 12), "op")


def parts_go_along_any_axis_with_any_lengths():
    for axis in (0, 1, 2, -1, -3):
        shapes = [[2, 3, 4] for _ in range(size)]
        for r in range(size):
            shapes[r][axis] = r % 3
        parts = [of_rank(r, tuple(shapes[r]), torch.int32) for r in range(size)]
        whole = torch.cat(parts, axis)
        same(comm.Allgather(parts[rank], axis), whole)
        gathered = comm.Gather(parts[rank], axis, last)
        if rank == last:
            same(gathered, whole)
        else:
            assert gathered.shape[axis] == 0
        same(comm.Scatter(whole if rank == last else None, axis, rank % 3, last), parts[rank])
        same(comm.Reduce_scatter(whole, MPI_SUM, axis, rank % 3), parts[rank] * size)


def alltoall_is_gather_and_scatter():
    shapes = [[2, 3, sum(1 + r for r in range(size))] for _ in range(size)]
    for r in range(size):
        shapes[r][0] = 1 + (r + 1) % 3
    xs = [of_rank(r, tuple(shapes[r])) for r in range(size)]
    start = sum(1 + r for r in range(rank))
    same(comm.Alltoall(xs[rank], 0, 2, 1 + rank), torch.cat([x.narrow(2, start, 1 + rank) for x in xs], 0))
    same(comm.Alltoall(xs[rank], -3, -1, 1 + rank), comm.Alltoall(xs[rank], 0, 2, 1 + rank))
    # Along one axis, what was in a row is cut anew.
    row = [of_rank(r, (1 + r, 2)) for r in range(size)]
    mine = 1 + (last - rank)
    begin = sum(1 + (last - r) for r in range(rank))
    same(comm.Alltoall(row[rank], 0, 0, mine), torch.cat(row).narrow(0, begin, mine))


def in_place_functions_write_the_tensors_own_memory():
    x = of_rank(rank, (4, 3))
    y = comm.Bcast_(x, last)
    assert y.data_ptr() == x.data_ptr()
    same(x, of_rank(last, (4, 3)))
    x = of_rank(rank, (4, 3))
    y = comm.Reduce_(x, MPI_SUM, 0)
    assert y.data_ptr() == x.data_ptr()
    same(x, sum(of_all((4, 3))) if rank == 0 else torch.zeros(4, 3, dtype=torch.float64))


def tensors_that_are_not_contiguous_are_no_exception():
    def spread(r: int) -> Tensor:
        return torch.stack([of_rank(r, (3, 4)), torch.full((3, 4), -7.0, dtype=torch.float64)], 2)

    x = spread(rank)[:, :, 0].t()
    assert not x.is_contiguous()
    same(comm.Allreduce(x), sum(spread(r)[:, :, 0].t() for r in range(size)))
    same(comm.Allgather(x, 1), torch.cat([spread(r)[:, :, 0].t() for r in range(size)], 1))
    got = comm.Sendrecv(x, right, torch.empty(3, 4, dtype=torch.float64).t(), left)
    same(got, spread(left)[:, :, 0].t())
    whole = spread(rank)
    result = comm.Bcast_(whole[:, :, 0], last)
    same(whole[:, :, 0], spread(last)[:, :, 0])
    assert result.data_ptr() == whole.data_ptr() and (whole[:, :, 1] == -7).all()
    raises(godwit.InvalidValue, lambda: comm.Bcast_(torch.zeros(1).expand(3), 0), "share their memory")


def receiving_into_a_tensor_that_is_not_contiguous_fills_it():
    whole = torch.zeros(3, 4, 2, dtype=torch.float64)
    handle = comm.Isend(of_rank(rank, (3, 4)), right, 0)
    result = comm.Recv(whole[:, :, 1], left, 0)
    comm.Wait(handle)
    same(whole[:, :, 1], of_rank(left, (3, 4)))
    assert result.data_ptr() == whole[:, :, 1].data_ptr() and (whole[:, :, 0] == 0).all()


def conjugated_and_negated_views_count_as_what_they_show():
    z = of_rank(rank, (3,), torch.complex128)
    same(comm.Allreduce(z.conj()), sum(of_all((3,), torch.complex128)).conj().resolve_conj())
    same(comm.Allreduce(z.conj().imag), -sum(of_all((3,), torch.complex128)).imag)
    x = of_rank(rank, (3,), torch.complex128).conj()
    same(comm.Bcast_(x, last).resolve_conj(), of_rank(last, (3,), torch.complex128).conj().resolve_conj())


def tensors_without_axes_and_without_entries_are_defined():
    one = torch.tensor(float(rank))
    same(comm.Allreduce(one), torch.tensor(float(sum(range(size)))))
    same(comm.Bcast_(one.clone(), last), torch.tensor(float(last)))
    same(comm.Allgather(one, 0), torch.arange(float(size)))
    same(comm.Gather(one, 0, 0), torch.arange(float(size)) if rank == 0 else torch.empty(0))
    same(comm.Scatter(torch.arange(float(size)), 0, 1, 0), torch.tensor([float(rank)]))
    same(comm.Sendrecv(one, right, torch.empty(()), left), torch.tensor(float(left)))
    none = torch.empty(0, 3)
    for result in (comm.Allreduce(none), comm.Scan(none), comm.Bcast_(none, 0), comm.Reduce_(none, MPI_SUM, 0),
                   comm.Allgather(none, 0), comm.Sendrecv(none, right, torch.empty(0, 3), left)):
        assert result.shape == (0, 3)
    assert comm.Allgather(none, 1).shape == (0, 3 * size)
    assert comm.Scatter(none if rank == 0 else None, 0, 0, 0).shape == (0, 3)
    x = torch.empty(0, 3, requires_grad=True)
    comm.Allreduce(x).sum().backward()
    assert x.grad.shape == (0, 3)


def what_scatter_is_given_on_other_ranks_does_not_matter():
    whole = torch.arange(2.0 * size)
    anything = [None, torch.ones(1, 1, dtype=torch.int8), 17, "text", torch.empty(0)][rank % 5]
    for axis in (0, -1):
        same(comm.Scatter(whole if rank == last else anything, axis, 2, last), whole[2 * rank:2 * rank + 2])


def numpy_arrays_give_numpy_arrays():
    if np is None:
        return
    x = np.arange(6.0).reshape(2, 3) + rank
    total = sum(np.arange(6.0).reshape(2, 3) + r for r in range(size))
    for array in (x, x[::-1][::-1], np.asfortranarray(x)):
        result = comm.Allreduce(array, MPI_SUM)
        assert type(result) is np.ndarray and (result == total).all()
    x.flags.writeable = False
    assert (comm.Allreduce(x) == total).all()
    raises(godwit.InvalidValue, lambda: comm.Bcast_(x, 0), "read-only")
    y = np.full(3, float(rank))
    assert comm.Bcast_(y, last) is not None and (y == last).all()
    assert comm.Allgather(np.array([rank]), 0).tolist() == list(range(size))
    part = comm.Scatter(np.arange(size) if rank == 0 else np.empty(0), 0, 1, 0)
    assert type(part) is np.ndarray and part.tolist() == [rank]
    buffer = np.empty(3)
    handle = comm.Isend(np.full(3, float(rank)), right, 0)
    got = comm.Recv(buffer, left, 0)
    assert type(comm.Wait(handle)) is np.ndarray
    assert type(got) is np.ndarray and (got == left).all() and (buffer == left).all()
    assert (comm.Sendrecv(np.full(2, rank), right, np.empty(2, dtype=int), left) == left).all()
    raises(godwit.InvalidType, lambda: comm.Allreduce([1.0, 2.0]), "tensor", "list")


# ---- messages ----------------------------------------------------------------------------------------


def messages_find_their_tags_and_keep_their_order():
    handles = [comm.Isend(torch.tensor([10.0 * rank + i]), right, i % 2) for i in range(6)]
    odd = [comm.Recv(torch.empty(1), left, 1).item() for _ in range(3)]
    even = [comm.Recv(torch.empty(1), ANY_SOURCE, ANY_TAG).item() for _ in range(3)]
    assert odd == [10 * left + i for i in (1, 3, 5)] and even == [10 * left + i for i in (0, 2, 4)]
    for handle in handles:
        comm.Wait(handle)


def a_handle_can_be_waited_for_once():
    handle = comm.Isend(torch.ones(1), rank, 0)
    comm.Recv(torch.empty(1), rank, 0)
    comm.Wait(handle)
    raises(godwit.WrongState, lambda: comm.Wait(handle), "handle")


def bad_messages_are_refused_by_name():
    raises(godwit.OutOfRange, lambda: comm.Isend(torch.ones(1), size, 0))
    raises(godwit.OutOfRange, lambda: comm.Isend(torch.ones(1), 0, -1), "tag")
    raises(godwit.OutOfRange, lambda: comm.Isend(torch.ones(1), 0, 1 << 31), "tag")
    raises(godwit.InvalidType, lambda: comm.Irecv("text", 0, 0), "tensor")
    raises(godwit.InvalidType, lambda: comm.Isend(torch.ones(1), 0, 0.5), "tag")


# ---- other communicators --------------------------------------------------------------------------------


def split_orders_by_key_and_leaves_out_colors_below_0():
    part = comm.Split(rank % 2, -rank)
    members = [r for r in range(size) if r % 2 == rank % 2][::-1]
    assert part.size == len(members) and members[part.rank] == rank
    same(part.Allgather(torch.tensor([rank]), 0), torch.tensor(members))
    assert (comm.Split(-1 if rank == last else 0, 0) is None) == (rank == last)
    with comm.Dup() as twin:
        assert (twin.rank, twin.size) == (rank, size)
        handle = comm.Isend(torch.tensor(1.0), rank, 0)
        other = twin.Isend(torch.tensor(2.0), rank, 0)
        assert twin.Recv(torch.empty(()), rank, 0) == 2 and comm.Recv(torch.empty(()), rank, 0) == 1
        comm.Wait(handle), twin.Wait(other)
    raises(godwit.WrongState, twin.Barrier, "closed")


def ranks_that_disagree_are_told_and_go_on():
    if size == 1:
        return
    raises(godwit.RanksDisagree, lambda: comm.Allreduce(torch.ones(2 + (rank == last))), "Allreduce", f"rank {last}")
    raises(godwit.RanksDisagree, lambda: comm.Scatter(torch.ones(3), 0, 2, 0), "Scatter")
    same(comm.Allreduce(torch.ones(2)), torch.full((2,), float(size)))


# ---- gradients ---------------------------------------------------------------------------------------------


def leaf(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return of_rank(rank, shape, dtype).requires_grad_()


def ties_share_the_gradient_of_an_extremum():
    holders = 1 + (size > 2)
    value = torch.tensor([5.0, float(rank)], dtype=torch.float64)
    value[1] = 9.0 if rank < holders else 1.0
    for op, sign in ((MPI_MAX, 1), (MPI_MIN, -1)):
        x = (sign * value).requires_grad_()
        comm.Allreduce(x, op).sum().backward()
        own = size / holders if rank < holders else 0.0
        torch.testing.assert_close(x.grad, torch.tensor([1.0, own], dtype=torch.float64))
        x = (sign * value).requires_grad_()
        comm.Reduce_(x, op, 0).sum().backward()
        torch.testing.assert_close(x.grad, torch.tensor([1 / size, own / size], dtype=torch.float64))


def gradients_of_products_are_right_where_factors_are_zero():
    for zeros in range(min(size, 2) + 1):
        factors = [0.0 if r < zeros else float(r + 2) for r in range(size)]
        others = 1.0
        for r in range(size):
            others *= factors[r] if r != rank else 1.0
        x = torch.tensor([factors[rank]], dtype=torch.float64, requires_grad=True)
        comm.Allreduce(x, MPI_PROD).sum().backward()
        assert x.grad.item() == size * others
        x = torch.tensor([factors[rank]], dtype=torch.float64, requires_grad=True)
        comm.Scan(x, MPI_PROD).sum().backward()
        expected = 0.0
        for r in range(rank, size):
            term = 1.0
            for s in range(r + 1):
                term *= factors[s] if s != rank else 1.0
            expected += term
        assert x.grad.item() == expected


def half_types_and_complex_have_gradients():
    for dtype in REALS + COMPLEX:
        x = torch.ones(3, dtype=dtype, requires_grad=True)
        comm.Allreduce(x).backward(torch.full((3,), rank + 1, dtype=dtype))
        same(x.grad, torch.full((3,), size * (size + 1) // 2, dtype=dtype))
        for op in (MPI_PROD,) if dtype in COMPLEX else (MPI_MAX, MPI_MIN, MPI_PROD):
            x = torch.full((2,), 1, dtype=dtype, requires_grad=True)
            comm.Scan(x, op)
            comm.Allreduce(x, op).backward(torch.ones(2, dtype=dtype))
            expected = size if op == MPI_PROD else 1
            torch.testing.assert_close(x.grad, torch.full((2,), expected, dtype=dtype))


def operations_without_derivative_say_so_in_the_backward_pass():
    x = torch.ones(2, 2, requires_grad=True)
    y = comm.Allreduce(x, MPI_MAXLOC)
    assert y.requires_grad
    raises(godwit.Unsupported, lambda: y.sum().backward(), "MAXLOC")
    assert not comm.Allreduce(torch.ones(2, dtype=torch.int64), MPI_BAND).requires_grad


def one_ranks_wish_for_a_gradient_is_enough():
    x = torch.ones(3, dtype=torch.float64, requires_grad=rank == last)
    y = comm.Allreduce(x)
    assert y.requires_grad
    (y * (rank + 1)).sum().backward()
    if rank == last:
        assert (x.grad == size * (size + 1) / 2).all()
    else:
        assert x.grad is None
    for call in (lambda: comm.Allgather(x, 0), lambda: comm.Bcast_(x * 1, last), lambda: comm.Scan(x),
                 lambda: comm.Scatter(x if rank == last and size == 3 else torch.ones(size, dtype=torch.float64)
                                      .requires_grad_(rank == last), 0, 1, last)):
        result = call()
        assert result.requires_grad
        result.sum().backward()


def a_result_that_comes_to_nothing_here_still_takes_part():
    class Drop(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sum()

        @staticmethod
        def backward(ctx, grad):
            return None

    x = leaf(3)
    y = comm.Allreduce(x)
    (y.sum() if rank == 0 else Drop.apply(y)).backward()
    assert (x.grad == 1).all()


def a_rank_that_records_nothing_is_named_in_the_backward_pass():
    if size == 1:
        return
    x = leaf(3)
    with torch.set_grad_enabled(rank != last):
        y = comm.Allreduce(x)
    assert y.requires_grad == (rank != last)
    if rank != last:
        raises(godwit.WrongState, lambda: y.sum().backward(), "no_grad")


def using_a_tensor_again_after_an_in_place_function_raises():
    for call in (lambda t: comm.Bcast_(t, 0), lambda t: comm.Reduce_(t, MPI_SUM, 0),
                 lambda t: comm.Reduce_(t, MPI_MAX, 0)):
        x = leaf(4)
        old = x + 0.0
        result = old + call(old)
        raises(godwit.WrongState, lambda: result.sum().backward(), "in place")
        comm.Barrier()
        x, whole = leaf(4), leaf(2, 4)
        old = (whole * 1)[1]
        result = call(old)
        result.sum().backward()  # the result itself is fine
        assert (whole.grad[0] == 0).all()


def leaves_may_be_passed_to_in_place_functions():
    x = leaf(3)
    comm.Bcast_(x, last).sum().backward()
    same(x.grad, torch.full((3,), float(size) if rank == last else 0.0, dtype=torch.float64))
    x = leaf(3)
    comm.Reduce_(x, MPI_SUM, last).sum().backward()
    same(x.grad, torch.ones(3, dtype=torch.float64))
    x = torch.nn.Parameter(of_rank(rank, (4, 3)))
    comm.Reduce_(x.t(), MPI_SUM, 0).sum().backward()
    same(x.grad, torch.ones(4, 3, dtype=torch.float64))


def values_that_were_overwritten_are_not_used_in_silence():
    x = leaf(3)
    w = torch.ones(3, dtype=torch.float64, requires_grad=True)
    buffer = torch.ones(3, dtype=torch.float64)
    product = buffer * w  # its derivative needs the buffer as it was
    comm.Sendrecv(torch.zeros(3, dtype=torch.float64), right, buffer, left)
    raises(RuntimeError, lambda: product.sum().backward(), "modified by an inplace operation")
    scratch = x + 0
    product = scratch * w
    comm.Reduce_(scratch, MPI_SUM, 0)
    raises(RuntimeError, lambda: product.sum().backward())


def an_exchange_needs_no_joindummies():
    for n in (1, 1000, 300_000):
        a = torch.full((n,), 1.0 + rank, dtype=torch.float64, requires_grad=True)
        handle = comm.Isend(a, right, 0)
        b = comm.Recv(torch.empty_like(a), left, 0)
        comm.Wait(handle)
        ((a + b) * (rank + 1)).sum().backward()
        same(a.grad, torch.full_like(a, rank + 1 + right + 1))


def a_send_is_joined_to_the_next_collective():
    a = torch.ones(2, dtype=torch.float64, requires_grad=True)
    if rank == 0:
        comm.Send(a * 3, last, 0)
    got = comm.Recv(torch.empty_like(a), 0, 0) if rank == last else torch.zeros(2, dtype=torch.float64)
    comm.Allreduce(got.sum()).backward()
    assert a.grad is None or (a.grad == 0).all() or rank == 0
    if rank == 0:
        assert (a.grad == 3 * size).all()


def a_gradient_that_is_lost_is_warned_of():
    a, x = leaf(2), leaf(2)
    y = comm.Allreduce(x)
    comm.Isend(a * 2, rank, 0)._message.request.wait()
    with torch.no_grad():
        comm.Recv(torch.empty_like(a), rank, 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y.sum().backward()
    assert len(caught) == 1 and f"message to rank {rank} is lost" in str(caught[0].message)
    assert (x.grad == size).all()


def messages_the_program_joined_are_left_to_it():
    a = torch.full((3,), 1.0 + rank, dtype=torch.float64, requires_grad=True)
    handle = comm.Isend(a, right, 0)
    buffer = JoinDummies(torch.empty_like(a), [handle.dummy])
    assert not comm._unjoined
    b = comm.Recv(buffer, left, 0)
    done = comm.Wait(JoinDummiesHandle(handle, [b]))
    result = JoinDummies(a + b, [done])
    (result * (rank + 1)).sum().backward()
    same(a.grad, torch.full_like(a, rank + 1 + right + 1))


def the_result_of_a_send_is_the_tensor_itself():
    a = torch.ones(2, dtype=torch.float64, requires_grad=True)
    handle = comm.Isend(a, right, 0)
    b = comm.Recv(torch.empty_like(a), left, 0)
    sent = comm.Wait(handle)
    (5 * sent + b).sum().backward()
    same(a.grad, torch.full_like(a, 6.0))


def only_the_senders_wish_makes_a_gradient_travel():
    buffer = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    handle = comm.Isend(torch.ones(2, dtype=torch.float64), right, 0)
    got = comm.Recv(buffer, left, 0)
    comm.Wait(handle)
    assert got.requires_grad and (got == 1).all()
    got.sum().backward()
    same(buffer.grad, torch.zeros(2, dtype=torch.float64))
    handle = comm.Isend(torch.ones(2, dtype=torch.float64), right, 0)
    assert not comm.Recv(torch.empty(2, dtype=torch.float64), left, 0).requires_grad
    comm.Wait(handle)


def dummies_get_a_gradient_of_zero():
    x, first, second = leaf(2), leaf(3), leaf(4)
    JoinDummies(comm.Allreduce(x), [first, second, torch.ones(1)]).sum().backward()
    same(x.grad, torch.full((2,), float(size), dtype=torch.float64))
    assert (first.grad == 0).all() and (second.grad == 0).all()
    plain = torch.ones(2)
    assert JoinDummies(plain, [torch.ones(1)]) is plain


def a_graph_can_be_run_twice():
    a = torch.full((3,), 1.0 + rank, dtype=torch.float64, requires_grad=True)
    handle = comm.Isend(a, right, 0)
    b = comm.Recv(torch.empty_like(a), left, 0)
    comm.Wait(handle)
    loss = comm.Allreduce((a * b).sum())
    loss.backward(retain_graph=True)
    once = a.grad.clone()
    loss.backward()
    torch.testing.assert_close(a.grad, 2 * once)


def backward_calls_are_made_in_the_reverse_order():
    """Whatever the graph looks like: here every result is used, in an order unlike that of the calls."""
    log = []

    class Watched:
        def __init__(self, native):
            self.native = native

        def __getattr__(self, name):
            return getattr(self.native, name)

        def call(self, kind, op, root, *rest):
            log.append(root)
            return self.native.call(kind, op, root, *rest)

    twin = comm.Dup()
    twin._native = Watched(twin._native)
    from godwit.comm.collectives import bcast, reduce

    xs = [leaf(2) for _ in range(7)]
    ys = []
    for i, x in enumerate(xs):
        source = ys[i // 2] if i % 3 == 2 else x  # some depend on earlier ones
        ys.append(bcast(twin, source, i % size) if i % 2 else reduce(twin, source, MPI_SUM, i % size))
    forward, log[:] = list(log), []
    order = [3, 0, 6, 1, 5, 2, 4]
    sum(((k + 1) * ys[i]).sum() for k, i in enumerate(order)).backward()
    assert log == forward[::-1], (forward, log)
    twin.close()


def count_tensors() -> int:
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


def a_training_loop_holds_on_to_nothing():
    def step(a: Tensor) -> Tensor:
        handle = comm.Isend(a * 2, right, 0)
        b = comm.Recv(torch.empty_like(a), left, 0)
        comm.Wait(handle)
        return comm.Allreduce((a * b).sum())

    def depth(node) -> int:
        deepest, level = 0, {node}
        while level:
            deepest += 1
            level = {up for one in level for up, _ in one.next_functions if up is not None}
        return deepest

    a = torch.full((4,), 1.0 + rank, dtype=torch.float64, requires_grad=True)
    first, watched = None, []
    for i in range(1000):
        loss = step(a)
        if i in (0, 999):
            first = first or depth(loss.grad_fn)
            assert depth(loss.grad_fn) == first
        if i % 100 == 0:
            watched.append(weakref.ref(loss))
        if i % 3:  # some are never differentiated
            loss.backward()
        a.grad = None
        if i == 200:
            gc.collect()
            tensors = count_tensors()
    del loss
    gc.collect()
    assert count_tensors() <= tensors + 3
    assert all(ref() is None for ref in watched) and len(comm._unjoined) <= 1 and not comm._outgoing


def a_pass_that_failed_does_not_spoil_the_next():
    class Fail(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("on purpose")

    for fails in (True, False):
        a = leaf(3)
        handle = comm.Isend(Fail.apply(a) if fails else a, right, 0)
        b = comm.Recv(torch.empty_like(a), left, 0)
        comm.Wait(handle)
        if fails:
            raises(ValueError, (b * 2).sum().backward, "on purpose")
        else:
            (b * 2).sum().backward()
            same(a.grad, torch.full((3,), 2.0, dtype=torch.float64))
    assert not comm._outgoing


def second_derivatives_do_not_depend_on_what_others_do_with_a_result():
    """The loss of rank 0 is quadratic in the sum, the others' is linear: their gradients have no own history."""
    x = leaf(2)
    y = comm.Allreduce(x)
    loss = (y * y).sum() if rank == 0 else y.sum()
    gradient, = torch.autograd.grad(loss, x, create_graph=True)
    second, = torch.autograd.grad(gradient.sum(), x)
    same(second, torch.full((2,), 2.0 * size, dtype=torch.float64))
    x = leaf(2)
    got = comm.Sendrecv(x, right, torch.empty_like(x), left)
    weight = 1.0 if rank == 0 else 0.0
    gradient, = torch.autograd.grad((weight * got * got + got).sum(), x, create_graph=True)
    second, = torch.autograd.grad(gradient.sum(), x)
    same(second, torch.full((2,), 2.0 if right == 0 else 0.0, dtype=torch.float64))


def checkpointed_functions_communicate_again():
    from torch.utils.checkpoint import checkpoint

    x = leaf(3)
    y = checkpoint(lambda t: comm.Allreduce(comm.Allreduce(t * t).sin()), x, use_reentrant=False)
    y.sum().backward()
    z = leaf(3)
    comm.Allreduce(comm.Allreduce(z * z).sin()).sum().backward()
    torch.testing.assert_close(x.grad, z.grad)


def an_optimizer_finds_the_minimum_of_all_ranks():
    target = torch.arange(3, dtype=torch.float64)
    p = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([p], max_iter=20)

    def closure() -> Tensor:
        optimizer.zero_grad()
        shared = comm.Allreduce(p, MPI_SUM) / size
        loss = comm.Allreduce(((shared - target - rank) ** 2).sum(), MPI_SUM)
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(p.detach(), target + last / 2)


HELPERS = {of_rank, of_all, raises, same, reference, leaf, count_tensors}
CHECKS = {name: check for name, check in list(globals().items())
          if inspect.isfunction(check) and check.__module__ == __name__ and check not in HELPERS}


def main() -> int:
    for name, check in CHECKS.items():
        check()
        comm.Barrier()
        sys.stdout.write(f"passed {name}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
