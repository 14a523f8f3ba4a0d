"""Random whole memories against NumPy: shapes, kinds, partitions, types, index patterns and operations.

Every rank draws the same numbers, so every rank knows what all of them do and has the whole reference.
Entries are small whole numbers, which all types hold and add exactly.

    godwit run -n 4 --node-size 2 memory_values.py SEED COUNT
"""

import os
import sys
import tempfile

import numpy as np
import torch

import godwit
from godwit import memory
from godwit.comm import COMM_WORLD
from godwit.comm.constants import DTYPES

EXACT = {torch.int8: 127, torch.uint8: 255, torch.bfloat16: 256, torch.float16: 2048}  # sums of whole numbers, up to that
MOST_BEFORE = 20
WIDE = {torch.bool: np.bool_, torch.complex64: np.complex128, torch.complex128: np.complex128}


def reference_type(dtype):
    return WIDE.get(dtype, np.float64)


def draw_values(draw, shape, dtype):
    values = draw.integers(0, 3, shape)
    if dtype.is_complex:
        return values + 1j * draw.integers(0, 3, shape)
    return values.astype(reference_type(dtype))


def draw_rows(draw, n_rows, n):
    """Uniform, few hot ones, a run, or all the same; with duplicates."""
    if n_rows == 0:
        return np.zeros(0, np.int64)
    pattern = draw.integers(4)
    if pattern == 0:
        return draw.integers(0, n_rows, n)
    if pattern == 1:
        return draw.choice(draw.integers(0, n_rows, 3), n)
    if pattern == 2:
        return (draw.integers(0, n_rows) + np.arange(n)) % n_rows
    return np.full(n, draw.integers(0, n_rows))


def same(found, expected):
    found = found.to(torch.complex128 if found.is_complex() else torch.float64).numpy()
    np.testing.assert_array_equal(found, expected.astype(found.dtype))


class Case:
    def __init__(self, draw, comm, kinds):
        self.draw, self.comm = draw, comm
        dims = int(draw.integers(1, 5))
        row = tuple(int(n) for n in draw.integers(1, 8, dims - 1))
        if dims == 2 and draw.random() < 0.2:
            row = (int(draw.integers(100, 3000)),)
        n_rows = int(draw.choice([0, 1, 2, 7, 50, 400]))
        self.dtype = DTYPES[int(draw.integers(len(DTYPES)))]
        self.kind = str(draw.choice(kinds))
        parts = strides = None
        if draw.random() < 0.5:
            parts = [int(n) for n in draw.multinomial(n_rows, draw.dirichlet(np.ones(comm.size)))]
        if draw.random() < 0.3:
            dense = [int(np.prod(row[i + 1:])) for i in range(len(row))]
            strides = [int(np.prod(row)) + int(draw.integers(0, 5)), *dense]
        self.whole = memory.empty((n_rows, *row), self.dtype, self.kind, comm, parts, strides)
        self.t, self.expected = self.whole, np.zeros((n_rows, *row), reference_type(self.dtype))
        self.told = f"{self.whole!r} parts {parts} strides {strides}"
        if draw.random() < 0.3 and n_rows > 1:
            low, high = sorted(int(n) for n in draw.integers(0, n_rows + 1, 2))
            cut = [slice(low, high)]
            if row and draw.random() < 0.5:
                cut.append(slice(int(draw.integers(0, row[0])), row[0]))
            self.t, self.expected = self.whole[tuple(cut)], self.expected[tuple(cut)]

    def lists(self, rows, dtype):
        rows = rows.astype(dtype)
        return rows if self.draw.random() < 0.5 else torch.from_numpy(rows)

    def of_each_rank(self, most=60):
        """What every rank does: (rank, rows, values)."""
        for rank in range(self.comm.size):
            rows = draw_rows(self.draw, len(self.expected), int(self.draw.integers(0, most)))
            yield rank, rows, draw_values(self.draw, (len(rows), *self.expected.shape[1:]), self.dtype)

    def values(self, values):
        other = self.dtype if self.draw.random() < 0.5 or self.dtype.is_complex or self.dtype is torch.bool \
            else torch.float32
        return torch.from_numpy(np.ascontiguousarray(values)).to(other)

    def add(self):
        most = 60
        if self.dtype in EXACT:  # so that no row of all ranks' values has a sum that the type cannot hold
            most = min(most, (EXACT[self.dtype] - MOST_BEFORE) // (2 * self.comm.size) + 1)
            if self.expected.size and self.expected.max() > MOST_BEFORE:
                self.t.zero_()
                self.expected[...] = 0
        for rank, rows, values in self.of_each_rank(most):
            np.add.at(self.expected, rows, values)
            if rank == self.comm.rank:
                mine = rows, values
        # Draws that depend on the rank come from a stream of the rank's own.
        self.t.scatter_add(self.values(mine[1]), mine[0].astype(np.int32))

    def write(self):
        n = len(self.expected)
        order = self.draw.permutation(n)
        for rank in range(self.comm.size):
            own = order[rank::self.comm.size]  # no row is written by two ranks
            rows = own[draw_rows(self.draw, len(own), int(self.draw.integers(0, 60)))] if len(own) else own
            values = draw_values(self.draw, (len(rows), *self.expected.shape[1:]), self.dtype)
            self.expected[rows] = values  # NumPy: the last one stays
            if rank == self.comm.rank:
                mine = rows, values
        self.t.scatter(self.values(mine[1]), mine[0])

    def read(self):
        for rank, rows, _ in self.of_each_rank():
            if rank == self.comm.rank:
                mine = rows
        same(self.t.gather(mine), self.expected[mine])
        other = torch.complex128 if self.dtype.is_complex else torch.float64
        same(self.t.gather(mine.astype(np.int32), dtype=other), self.expected[mine])

    def fill(self):
        self.t.fill_(1)
        self.expected[...] = 1

    def copy(self):
        other = memory.empty(self.t.shape, self.dtype, "distributed", self.comm)
        with other:
            other.copy_(self.t)
            same(other.gather(np.arange(len(self.expected))), self.expected)

    def files(self):
        path = os.path.join(self.directory, "x.npy" if self.draw.random() < 0.5 and self.dtype is not torch.bfloat16 else "x")
        parts = self.draw.random() < 0.5
        paths = self.t.save(path, parts=bool(parts))
        # Another kind, and parts of its own: as if another number of ranks read it.
        rows = [0] * self.comm.size
        rows[-1] = len(self.expected)
        with memory.empty(self.t.shape, self.dtype, "distributed", self.comm, rows) as other:
            other.load(paths)
            same(other.gather(np.arange(len(self.expected))), self.expected)
        self.comm.Barrier()

    def views(self):
        start = self.t.local_start
        same(self.t.local, self.expected[start:start + len(self.t.local)])
        if self.kind == "continuous":
            same(self.t.torch(), self.expected)

    def refuse(self):
        n = len(self.expected)
        bad = np.array([0, n]) if self.draw.random() < 0.5 else np.array([-1, 0])
        for call in (lambda: self.t.gather(bad), lambda: self.t.scatter(0, bad), lambda: self.t.scatter_add(1, bad)):
            try:
                call()
                raise AssertionError("a bad index was accepted")
            except godwit.OutOfRange as refusal:
                assert "indices[" in str(refusal)

    def run(self, steps):
        names = ["add", "write", "read", "read", "fill", "copy", "files", "views", "refuse"]
        for name in self.draw.choice(names, steps):
            self.told += f" {name}"
            getattr(self, str(name))()
            self.comm.Barrier()
        same(self.t.gather(np.arange(len(self.expected))), self.expected)
        self.comm.Barrier()
        self.t.close()
        self.whole.close()


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    world = godwit.init()
    kinds = memory.KINDS if world.nodes == 1 else ("distributed",)
    name = torch.zeros(4096, dtype=torch.uint8)
    directory = tempfile.mkdtemp() if world.rank == 0 else ""
    name[:len(directory)] = torch.tensor(list(directory.encode()), dtype=torch.uint8)
    directory = bytes(COMM_WORLD.Bcast_(name, 0).tolist()).rstrip(b"\0").decode()
    for number in range(seed, seed + count):
        case = None
        try:
            case = Case(np.random.default_rng(number), COMM_WORLD, kinds)
            case.directory = directory
            case.run(6)
        except BaseException:
            print(f"seed {number}: {case and case.told}", file=sys.stderr, flush=True)
            raise
    COMM_WORLD.Barrier()
    if world.rank == 0:
        for file in os.listdir(directory):
            os.unlink(os.path.join(directory, file))
        os.rmdir(directory)
    print(f"passed: {count} from {seed}")


if __name__ == "__main__":
    main()
