"""Random programs of collectives and messages, compared with what one process computes alone.

    godwit run -n 3 comm_programs.py FIRST_SEED N_PROGRAMS [--close]

All ranks draw the same program from a seed, and every rank can compute everybody's tensors, so each compares what
it got with what it should have got.  Entries are combined in the order of ranks, so on shared memory results are
equal to the last bit; with --close (for MPI, which has its own order) floating sums may differ a little.
"""

from __future__ import annotations

import random
import sys

import torch

from godwit.comm import (ANY_SOURCE, ANY_TAG, COMM_WORLD, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR,
                         MPI_MAX, MPI_MIN, MPI_PROD, MPI_SUM)

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
TYPES = FLOATS + COMPLEX + INTEGERS + [torch.bool]
ARITHMETIC = [MPI_SUM, MPI_PROD]
ORDERED = [MPI_MAX, MPI_MIN]
LOGICAL = [MPI_LAND, MPI_BAND, MPI_LOR, MPI_BOR, MPI_LXOR, MPI_BXOR]

close = "--close" in sys.argv


def values(seed: str, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(random.Random(seed).getrandbits(60))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype in INTEGERS:
        return torch.randint(0, 256, shape, generator=generator).to(dtype)
    if dtype in COMPLEX:
        return torch.randn(shape, dtype=dtype, generator=generator)
    return torch.randn(shape, generator=generator).to(dtype)


def shuffled(tensor: torch.Tensor, draw: random.Random) -> torch.Tensor:
    """The same values, perhaps not lying row by row."""
    if tensor.dim() >= 2 and draw.random() < 0.3:
        return tensor.transpose(0, 1).contiguous().transpose(0, 1)
    return tensor.clone()


def combined(tensors: list[torch.Tensor], op: int) -> torch.Tensor:
    half = tensors[0].dtype in (torch.float16, torch.bfloat16)
    result = tensors[0].float() if half else tensors[0]
    for tensor in tensors[1:]:
        other = tensor.float() if half else tensor
        if op == MPI_SUM:
            result = result | other if result.dtype == torch.bool else result + other
        elif op == MPI_PROD:
            result = result & other if result.dtype == torch.bool else product(result, other)
        elif op == MPI_MAX:
            result = torch.maximum(result, other)
        elif op == MPI_MIN:
            result = torch.minimum(result, other)
        elif op in (MPI_BAND, MPI_BOR, MPI_BXOR):
            result = {MPI_BAND: torch.bitwise_and, MPI_BOR: torch.bitwise_or, MPI_BXOR: torch.bitwise_xor}[op](
                result, other)
        else:
            result = {MPI_LAND: torch.logical_and, MPI_LOR: torch.logical_or, MPI_LXOR: torch.logical_xor}[op](
                result, other).to(tensors[0].dtype)
    return result.to(tensors[0].dtype)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if not a.is_complex():
        return a * b
    return torch.complex(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def operation(draw: random.Random, dtype: torch.dtype) -> int:
    if dtype in COMPLEX:
        return draw.choice(ARITHMETIC)
    return draw.choice(ARITHMETIC + ORDERED + ([] if dtype in FLOATS else LOGICAL))


class Program:
    """One program, as rank `me` of `comm` sees it."""

    def __init__(self, comm, seed: int):
        self.comm, self.seed = comm, seed
        self.draw = random.Random(seed)  # the same on all ranks
        self.own = random.Random(f"{seed}/{comm.rank}")
        self.size, self.me = comm.size, comm.rank
        self.step = 0

    def run(self) -> None:
        for _ in range(self.draw.randint(1, 8)):
            self.step += 1
            kind = self.draw.choice([self.allreduce, self.reduce, self.bcast, self.gather, self.allgather, self.scatter,
                                     self.alltoall, self.reduce_scatter, self.scan, self.barrier, self.ring,
                                     self.exchange, self.anybody])
            self.what = kind.__name__
            kind()

    def tensor(self, rank: int, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        return values(f"{self.seed}/{self.step}/{rank}", shape, dtype)

    def shape(self, least: int = 0) -> list[int]:
        largest = self.draw.choice([1, 3, 6, 6, 6, 40])
        return [self.draw.randint(0 if self.draw.random() < 0.1 else 1, largest)
                for _ in range(self.draw.randint(least, 3))]

    def long(self, shape: list[int]) -> list[int]:
        """Now and then so large that it streams."""
        return [self.draw.randint(5000, 90000)] + shape[1:2] if self.draw.random() < 0.08 else shape

    def check(self, got: torch.Tensor, expected: torch.Tensor) -> None:
        assert got.dtype == expected.dtype and got.shape == expected.shape, (
            f"seed {self.seed} step {self.step} {self.what}: got {got.dtype}{list(got.shape)}, "
            f"expected {expected.dtype}{list(expected.shape)}")
        if close and expected.dtype in FLOATS + COMPLEX:
            coarse = expected.dtype in (torch.float16, torch.bfloat16)
            equal = torch.allclose(got, expected, rtol=2e-2 if coarse else 1e-4, atol=1e-2 if coarse else 1e-5,
                                   equal_nan=True)
        else:
            equal = torch.equal(got, expected)
        assert equal, f"seed {self.seed} step {self.step} {self.what}: rank {self.me} got\n{got}\nexpected\n{expected}"

    def same_shape(self) -> tuple[list[torch.Tensor], torch.Tensor, int]:
        shape, dtype = self.long(self.shape()), self.draw.choice(TYPES)
        tensors = [self.tensor(rank, shape, dtype) for rank in range(self.size)]
        return tensors, shuffled(tensors[self.me], self.own), operation(self.draw, dtype)

    def allreduce(self) -> None:
        tensors, mine, op = self.same_shape()
        self.check(self.comm.Allreduce(mine, op), combined(tensors, op))

    def reduce(self) -> None:
        tensors, mine, op = self.same_shape()
        root = self.draw.randrange(self.size)
        expected = combined(tensors, op) if self.me == root else torch.zeros_like(tensors[0])
        self.check(self.comm.Reduce_(mine, op, root), expected)
        self.check(mine, expected)

    def bcast(self) -> None:
        tensors, mine, _ = self.same_shape()
        root = self.draw.randrange(self.size)
        self.check(self.comm.Bcast_(mine, root), tensors[root])
        self.check(mine, tensors[root])

    def scan(self) -> None:
        tensors, mine, op = self.same_shape()
        self.check(self.comm.Scan(mine, op), combined(tensors[:self.me + 1], op))

    def ragged(self) -> tuple[list[torch.Tensor], int]:
        shape, dtype = self.long(self.shape(1)), self.draw.choice(TYPES)
        axis = self.draw.randrange(len(shape))
        lengths = [self.draw.randint(0, 2 * shape[axis]) for _ in range(self.size)]
        return [self.tensor(rank, shape[:axis] + [length] + shape[axis + 1:], dtype)
                for rank, length in enumerate(lengths)], axis

    def gather(self) -> None:
        tensors, axis = self.ragged()
        root = self.draw.randrange(self.size)
        got = self.comm.Gather(shuffled(tensors[self.me], self.own), axis, root)
        everything = torch.cat(tensors, axis)
        self.check(got, everything if self.me == root else everything.narrow(axis, 0, 0))

    def allgather(self) -> None:
        tensors, axis = self.ragged()
        named = axis - tensors[0].dim() if self.draw.random() < 0.3 else axis
        self.check(self.comm.Allgather(shuffled(tensors[self.me], self.own), named), torch.cat(tensors, axis))

    def counts(self, axis_is_long: bool = True) -> list[int]:
        most = self.draw.choice([2, 5, 5, 5, 3000]) if axis_is_long else 5
        return [self.draw.randint(0, most) for _ in range(self.size)]

    def scatter(self) -> None:
        shape, dtype, counts = self.shape(1), self.draw.choice(TYPES), self.counts()
        axis, root = self.draw.randrange(len(shape)), self.draw.randrange(self.size)
        shape[axis] = sum(counts)
        whole = self.tensor(root, shape, dtype)
        mine = shuffled(whole, self.own) if self.me == root else self.own.choice([None, torch.zeros(3)])
        self.check(self.comm.Scatter(mine, axis, counts[self.me], root), whole.split(counts, axis)[self.me].contiguous())

    def reduce_scatter(self) -> None:
        shape, dtype, counts = self.shape(1), self.draw.choice(TYPES), self.counts()
        axis, op = self.draw.randrange(len(shape)), operation(self.draw, dtype)
        shape[axis] = sum(counts)
        tensors = [self.tensor(rank, shape, dtype) for rank in range(self.size)]
        got = self.comm.Reduce_scatter(shuffled(tensors[self.me], self.own), op, axis, counts[self.me])
        self.check(got, combined(tensors, op).split(counts, axis)[self.me].contiguous())

    def alltoall(self) -> None:
        shape, dtype, counts = self.shape(2), self.draw.choice(TYPES), self.counts()
        gatheraxis, scatteraxis = self.draw.sample(range(len(shape)), 2)
        shape[scatteraxis] = sum(counts)
        tensors = []
        for rank in range(self.size):
            shape[gatheraxis] = self.draw.randint(0, 6)
            tensors.append(self.tensor(rank, list(shape), dtype))
        got = self.comm.Alltoall(shuffled(tensors[self.me], self.own), gatheraxis, scatteraxis, counts[self.me])
        whole = torch.cat(tensors, gatheraxis)
        self.check(got, whole.split(counts, scatteraxis)[self.me].contiguous())

    def barrier(self) -> None:
        self.comm.Barrier()

    def ring(self) -> None:
        shape, dtype, tag = self.long(self.shape()), self.draw.choice(TYPES), self.draw.randint(0, 99)
        distance = self.draw.randrange(self.size)
        dest, source = (self.me + distance) % self.size, (self.me - distance) % self.size
        mine, expected = self.tensor(self.me, shape, dtype), self.tensor(source, shape, dtype)
        if self.draw.random() < 0.5:
            got = self.comm.Sendrecv(mine, dest, torch.zeros_like(mine), source, tag, tag)
        else:
            handle = self.comm.Isend(mine, dest, tag)
            got = self.comm.Recv(torch.zeros_like(mine), source, tag)
            self.comm.Wait(handle)
        self.check(got, expected)

    def exchange(self) -> None:
        """Everybody to everybody, waited for in another order than sent."""
        shape, dtype = self.shape(), self.draw.choice(TYPES)
        receives = [self.comm.Irecv(torch.zeros(shape, dtype=dtype), rank, rank) for rank in range(self.size)]
        mine = self.tensor(self.me, shape, dtype)
        sends = [self.comm.Isend(mine, rank, self.me) for rank in range(self.size)]
        for rank in random.Random(self.seed + self.me).sample(range(self.size), self.size):
            self.check(self.comm.Wait(receives[rank]), self.tensor(rank, shape, dtype))
        for handle in sends:
            self.comm.Wait(handle)

    def anybody(self) -> None:
        """All send to one, who takes them as they come."""
        root, tag = self.draw.randrange(self.size), self.draw.choice([ANY_TAG, self.step])
        if self.me != root:
            self.comm.Send(torch.tensor([self.me, self.step]), root, self.step)
        else:
            got = [self.comm.Recv(torch.zeros(2, dtype=torch.int64), ANY_SOURCE, tag) for _ in range(self.size - 1)]
            assert sorted(int(t[0]) for t in got) == [r for r in range(self.size) if r != root], got
        self.comm.Barrier()  # what is sent next must not be taken for this


def main() -> None:
    first, n = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + n):
        draw = random.Random(f"split {seed}")
        if COMM_WORLD.size > 1 and draw.random() < 0.2:
            colors = [draw.randint(0, 1) for _ in range(COMM_WORLD.size)]
            part = COMM_WORLD.Split(colors[COMM_WORLD.rank], draw.choice([-1, 1]) * COMM_WORLD.rank)
            Program(part, seed).run()
        else:
            Program(COMM_WORLD, seed).run()
    if COMM_WORLD.rank == 0:
        print(f"{n} programs from seed {first} with {COMM_WORLD.size} ranks: all as expected")


if __name__ == "__main__":
    main()
