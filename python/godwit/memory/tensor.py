"""Memory: whole memory as an object that looks like a tensor, and how it is made."""

from __future__ import annotations

import os
from typing import Any, Optional, Sequence, Union

import torch

from .. import _native
from .._native import InvalidType, InvalidValue, Unsupported, WrongState
from ..comm import COMM_WORLD, Communicator
from ..comm.constants import DTYPES

KINDS = ("continuous", "chunked", "distributed")
FORMATS = {None: 0, "raw": 1, "npy": 2}

Path = Union[str, "os.PathLike[str]"]


class Stride(tuple):
    """Strides in entries: a tuple, and a call as a tensor's stride() is."""

    def __call__(self, dim: Optional[int] = None) -> Any:
        return self if dim is None else self[dim]


class Memory:
    """A tensor that all ranks of a group see.  Make one with empty(), zeros() or from_file().

    Attributes: shape, dtype, stride (a tuple, or a call), kind, comm, local_start, requires_grad, grad.
    """

    def __init__(self, native: _native.Memory, comm: Communicator):
        kind, dtype, shape, strides, self._rank, self._size, self._spans = native.info()
        self._native = native
        self.comm = comm
        self.kind = KINDS[kind]
        self.dtype = DTYPES[dtype]
        self.shape = torch.Size(shape)
        self._row_shape = self.shape[1:]
        self.stride = Stride(strides)
        self.local_start, self._local_rows = native.part(self._rank)
        self.grad: Optional[Memory] = None
        self._anchor: Optional[torch.Tensor] = None  # what autograd hangs the gathers on

    # ---- what it is ---------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def closed(self) -> bool:
        """Whether it was closed, or its job left."""
        return self._native.closed

    def __len__(self) -> int:
        return self.shape[0]

    def part(self, rank: int) -> tuple[int, int]:
        """Which rows are a rank's: the first, and how many."""
        return self._native.part(rank)

    @property
    def rows_per_rank(self) -> list[int]:
        return [self.part(rank)[1] for rank in range(self._size)]

    def __repr__(self) -> str:
        what = f"{' x '.join(map(str, self.shape))} {str(self.dtype).removeprefix('torch.')}, {self.kind}"
        if self.closed:
            return f"<godwit.memory.Memory: {what}, closed>"
        first, count = self.local_start, self._local_rows
        rows = f"rows {first} to {first + count - 1} of them" if count else "none of the rows"
        return f"<godwit.memory.Memory: {what}; {rows} on this rank, {self._rank} of {self._size}>"

    # ---- views without copying ------------------------------------------------------------

    def _view(self, rank: int, rows: int) -> Optional[torch.Tensor]:
        chunk = self._native.chunk(rank)
        if chunk is None:
            return None
        shape = (rows, *self._row_shape)
        if 0 in shape:
            return torch.empty(shape, dtype=self.dtype)
        return torch.frombuffer(chunk, dtype=self.dtype).as_strided(shape, self.stride)

    @property
    def local(self) -> torch.Tensor:
        """This rank's rows, as a tensor of the same bytes."""
        return self._view(self._rank, self._local_rows)  # type: ignore[return-value]

    def chunk(self, rank: int) -> torch.Tensor:
        """A rank's rows, as a tensor of the same bytes, if they lie on this node."""
        view = self._view(rank, self.part(rank)[1])
        if view is None:
            raise Unsupported(f"the rows of rank {rank} lie on another node; gather() reaches them")
        return view

    def torch(self) -> torch.Tensor:
        """All rows, as a tensor of the same bytes; of continuous memory only."""
        view = self._view(-1, self.shape[0])
        if view is None:
            raise Unsupported(f"{self.kind} memory is no single tensor; use gather(), local or chunk(rank), or kind "
                              "'continuous'")
        return view

    def numpy(self) -> Any:
        """The same as a NumPy array."""
        return self.torch().numpy()

    def get_ptr(self, rank: Optional[int] = None) -> int:
        """The address, in this process, of all rows (continuous), or of a rank's; without a rank, this one's."""
        if rank is None:
            rank = -1 if self.kind == "continuous" else self._rank
        chunk = self._native.chunk(rank)
        if chunk is None:
            raise Unsupported(f"the rows of rank {rank} lie on another node, or not together; they have no address here")
        return chunk.address

    # ---- rows -------------------------------------------------------------------------------

    def gather(self, indices: Any, out: Any = None, dtype: Optional[torch.dtype] = None) -> torch.Tensor:
        """Rows by number: a tensor of shape indices.shape + shape[1:].

        `out` is filled and returned if given.  With another dtype the entries are converted.  If the memory
        requires a gradient, the rows do, and a backward pass adds to `grad`.  Collective if the memory is
        distributed over nodes.
        """
        rows = as_indices(indices)
        if self._anchor is not None and torch.is_grad_enabled():
            if out is not None:
                raise InvalidValue("out: rows that require a gradient cannot be written to it; leave it out, or "
                                   "gather under torch.no_grad()")
            return _Gather.apply(self._anchor, self, rows, dtype)
        return self._gather(rows, out, dtype)

    def _gather(self, rows: torch.Tensor, out: Any = None, dtype: Optional[torch.dtype] = None) -> torch.Tensor:
        if out is None:
            out = torch.empty(rows.shape + self._row_shape, dtype=dtype or self.dtype)
        self._native.gather(rows, out)
        return out

    def scatter(self, values: Any, indices: Any) -> None:
        """Write rows.  Of a row that comes twice the last one stays.  Values are converted if need be, and
        expanded if they have fewer rows.  Collective if the memory is distributed over nodes."""
        rows = as_indices(indices)
        self._native.scatter(rows, self._values(values, rows))

    def scatter_add(self, values: Any, indices: Any) -> None:
        """Add to rows; all additions count, also those that other ranks make at the same time.  Otherwise as
        scatter()."""
        rows = as_indices(indices)
        self._native.scatter_add(rows, self._values(values, rows))

    def _values(self, values: Any, rows: torch.Tensor) -> torch.Tensor:
        tensor = values if isinstance(values, torch.Tensor) else torch.as_tensor(values, dtype=_dtype_of(values, self))
        shape = rows.shape + self._row_shape
        if tensor.shape == shape and _is_plain(tensor):
            return tensor
        if tensor.shape != shape:
            try:
                tensor = tensor.expand(shape)
            except RuntimeError:
                return tensor.detach().contiguous()  # the library says what is wrong, on all ranks alike
        return tensor.detach().resolve_conj().resolve_neg().contiguous()

    def __getitem__(self, key: Any) -> Any:
        """A slice, or two, gives a view of that part, a Memory; anything else gathers rows."""
        parts = key if isinstance(key, tuple) else (key,)
        if parts and all(isinstance(part, slice) for part in parts):
            return self._sub(parts)
        if isinstance(key, int):
            return self.gather([key + self.shape[0] if key < 0 else key])[0]
        return self.gather(key)

    def __setitem__(self, key: Any, values: Any) -> None:
        if isinstance(key, (tuple, slice)):
            raise Unsupported("memory[...] = values takes rows by number; of slices use .torch(), .local or scatter()")
        self.scatter(values, [key + self.shape[0] if key < 0 else key] if isinstance(key, int) else key)

    def _sub(self, parts: Sequence[slice]) -> "Memory":
        if len(parts) > self.ndim:
            raise InvalidValue(f"{len(parts)} slices of a memory with {self.ndim} dimensions")
        starts, ends = [0] * self.ndim, list(self.shape)
        for i, part in enumerate(parts):
            starts[i], ends[i], step = part.indices(self.shape[i])
            if step != 1:
                raise Unsupported(f"a slice with step {step}; gather(torch.arange(...)) takes every so many")
            ends[i] = max(starts[i], ends[i])
        return Memory(self._native.sub(starts, ends), self.comm)

    # ---- everything at once, collective -------------------------------------------------------

    def fill_(self, value: Any) -> "Memory":
        """Set every entry; collective, each rank does its rows."""
        self._native.fill(torch.as_tensor(value, dtype=_dtype_of(value, self)).detach().reshape(1))
        return self

    def zero_(self) -> "Memory":
        return self.fill_(0)

    def copy_(self, other: "Memory") -> "Memory":
        """Take the entries of a memory of the same shape and group, of any kind and type; collective."""
        self._native.copy(other._native)
        return self

    def save(self, path: Path, parts: bool = False, format: Optional[str] = None) -> list[str]:
        """Write everything to a file, each rank its rows; collective.  Returns the paths.

        A path that ends with .npy gives a file for numpy.load(), others raw entries.  With `parts` each rank
        writes a file of its own.  from_file() and load() take either, with any number of ranks.
        """
        self._native.store(path, _format(format), parts)
        if not parts:
            return [os.fspath(path)]
        return [_native.memory_part_path(path, rank, self._size) for rank in range(self._size)]

    def load(self, path: Union[Path, Sequence[Path]], format: Optional[str] = None) -> "Memory":
        """Fill it with the rows of a file, or of several one after the other; collective.

        A file that is missing, or files that do not hold exactly these rows, are refused by name, and nothing
        changes on any rank.
        """
        self._native.load(_paths(path), _format(format))
        return self

    # ---- derivatives ----------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        return self._anchor is not None

    def requires_grad_(self, requires_grad: bool = True) -> "Memory":
        """Collective: have rows that are gathered require a gradient, and `grad`, a memory of the same shape
        and kind, into which backward passes scatter-add."""
        if not requires_grad:
            self.grad = self._anchor = None
        elif self._anchor is None:
            if not (self.dtype.is_floating_point or self.dtype.is_complex):
                raise InvalidType(f"only floating and complex entries have a gradient, not {self.dtype}")
            self.grad = empty(self.shape, self.dtype, self.kind, self.comm, self.rows_per_rank)
            self._anchor = torch.empty(0, requires_grad=True)
        return self

    # ---- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Give the memory back, as soon as no view of it is in use; not collective."""
        self._native.close()
        if self.grad is not None:
            self.grad.close()

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise WrongState("whole memory cannot be pickled; save() it, or use it in a forked child")


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, memory: Memory, rows: torch.Tensor,
                dtype: Optional[torch.dtype]) -> torch.Tensor:
        ctx.memory = memory
        ctx.rows = rows.clone()
        return memory._gather(rows, None, dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        target = ctx.memory.grad
        if target is not None:
            target.scatter_add(grad, ctx.rows)
        return None, None, None, None


# ---- making -------------------------------------------------------------------------------------------


def empty(shape: Union[int, Sequence[int]], dtype: torch.dtype = torch.float32, kind: str = "continuous",
          comm: Optional[Communicator] = None, rows_per_rank: Optional[Sequence[int]] = None,
          strides: Optional[Sequence[int]] = None) -> Memory:
    """Collective: new memory for all ranks of `comm`, None for all of the job.  Its entries are 0.

    The rows are cut into equal parts, rounded up, or as rows_per_rank says.  strides, in entries, may set the
    rows apart.  A group that spans nodes needs kind="distributed".
    """
    group = COMM_WORLD if comm is None else comm
    native = group._open()
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    number = KINDS.index(kind) if kind in KINDS else -1
    if dtype not in DTYPES:
        raise InvalidType(f"dtype: {dtype!r} is not possible; there are: {', '.join(map(str, DTYPES))}")
    if number < 0:
        raise InvalidValue(f"kind: {kind!r} is not known; there are: {', '.join(KINDS)}")
    opened = _native.memory_open(native, number, DTYPES.index(dtype), shape, strides or None, rows_per_rank)
    return Memory(opened, group)


def zeros(shape: Union[int, Sequence[int]], dtype: torch.dtype = torch.float32, kind: str = "continuous",
          comm: Optional[Communicator] = None, rows_per_rank: Optional[Sequence[int]] = None) -> Memory:
    """The same; that the entries are 0 is meant."""
    return empty(shape, dtype, kind, comm, rows_per_rank)


def from_file(path: Union[Path, Sequence[Path]], dtype: Optional[torch.dtype] = None,
              columns: Optional[Union[int, Sequence[int]]] = None, kind: str = "continuous",
              comm: Optional[Communicator] = None, rows_per_rank: Optional[Sequence[int]] = None,
              format: Optional[str] = None) -> Memory:
    """Collective: memory with the rows of a file, or of several one after the other; each rank reads its own.

    .npy files know their type and shape.  For others give dtype and, if there are two dimensions or more, how
    many columns a row has (or its shape).
    """
    paths = _paths(path)
    if not paths:
        raise InvalidValue("path: none was given")
    row: tuple[int, ...] = () if columns is None else (columns,) if isinstance(columns, int) else tuple(columns)
    n_rows = 0
    for one in paths:
        kind_of_file, n_bytes, number, shape = _native.memory_file(one, _format(format))
        if kind_of_file == FORMATS["npy"]:
            if not shape:
                raise InvalidValue(f"'{os.fspath(one)}' holds a single number without dimensions")
            dtype, row = dtype or DTYPES[number], row or tuple(shape[1:])
            n_rows += shape[0]
        elif dtype is None:
            raise InvalidValue(f"dtype: '{os.fspath(one)}' is a raw file; say of which type its entries are")
        else:
            row_bytes = torch.empty((), dtype=dtype).element_size()
            for length in row:
                row_bytes *= length
            if row_bytes == 0 or n_bytes % row_bytes:
                raise InvalidValue(f"'{os.fspath(one)}' has {n_bytes} bytes, which is no whole number of rows of "
                                   f"{row_bytes} bytes")
            n_rows += n_bytes // row_bytes
    made = empty((n_rows, *row), dtype or torch.float32, kind, comm, rows_per_rank)
    try:
        return made.load(paths, format)
    except BaseException:
        made.close()
        raise


# ---- arguments ------------------------------------------------------------------------------------------


def as_indices(indices: Any) -> torch.Tensor:
    """Rows by number, as the library wants them: int32 or int64, dense.  Other types it refuses itself."""
    if isinstance(indices, torch.Tensor):
        return indices.contiguous()
    if isinstance(indices, range):
        return torch.arange(indices.start, indices.stop, indices.step)
    tensor = torch.as_tensor(indices)
    return tensor.to(torch.int64) if tensor.numel() == 0 else tensor.contiguous()


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the library can take it as it is: to ask is quicker than four functions that would return it."""
    return tensor.is_contiguous() and not (tensor.requires_grad or tensor.is_neg() or tensor.is_conj())


def _dtype_of(values: Any, memory: Memory) -> Optional[torch.dtype]:
    """Python's own numbers take the memory's type; arrays have one."""
    return None if hasattr(values, "dtype") else memory.dtype


def _paths(path: Any) -> list[Any]:
    return [path] if isinstance(path, (str, bytes, os.PathLike)) else list(path)


def _format(format: Optional[str]) -> int:
    if format not in FORMATS:
        raise InvalidValue(f"format: {format!r} is not known; give 'raw' or 'npy', or nothing, to go by the name")
    return FORMATS[format]
