"""Embedding: rows that live in Parameters, used in a model as those of torch.nn.Embedding are.

What happens in a step of training:

    forward    each row that is looked up is pulled, once however often it occurs
    backward   the gradients of a row are added up, over duplicates and over all look-ups of the pass; when the
               pass is over the optimizer makes one change of each row, and that is pushed

So there is no `step()` to call and nothing to set to zero, and what is pushed needs no memory of its own until the
next step.  Rows of several workers' batches may be the same: their changes add up.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch
from torch import Tensor

from .. import Parameters, Worker, _native
from ..optim import Optimizer

__all__ = ["Embedding"]

_BLOCK = 1024  # rows that are given their first values together, from one seed


# Keys, each once; which of them each row of the gradient is about, None: one after the other; rows as pulled; gradient.
_Part = tuple[Tensor, Optional[Tensor], Tensor, Tensor]


class _Lent:
    """Memory for rows that are pulled.  When nobody has it any more, the next look-up does: what is new comes page by page,
    which takes longer than to fill it."""

    MOST_FREE = 4

    def __init__(self, free: list[Tensor], n: int, length: int, dtype: torch.dtype) -> None:
        self.free = free
        self.memory = free.pop() if free else torch.empty(0, length, dtype=dtype)
        if len(self.memory) < n:
            self.memory = torch.empty(n, length, dtype=dtype)
        self.rows = self.memory[:n]

    def __del__(self) -> None:
        if len(self.free) < self.MOST_FREE:
            self.free.append(self.memory)


@dataclass
class _Room:
    """What a pass adds up in.  `pushed` is the push that may still read it."""

    keys: Tensor
    rows: Tensor
    sums: Tensor
    pushed: int = -1


class _Pass:
    """The gradients of a backward pass, until it is over.  Of one worker and one optimizer."""

    def __init__(self, worker: Worker, optimizer: Optimizer) -> None:
        self.worker, self.optimizer = worker, optimizer
        self.parts: list[_Part] = []
        self._lent: list[_Lent] = []  # what they lie in
        self._free: dict[tuple[int, torch.dtype], list[Tensor]] = {}
        self._rooms: dict[tuple[int, int, torch.dtype], _Room] = {}
        self._end: Optional[weakref.ref[_EndOfPass]] = None

    def lend(self, n: int, length: int, dtype: torch.dtype) -> _Lent:
        return _Lent(self._free.setdefault((length, dtype), []), n, length, dtype)

    def add(self, part: _Part, lent: Optional[_Lent]) -> None:
        if self._end is None or self._end() is None:  # the first of a pass
            # The engine holds what it is to call when the pass is done, and lets go of it then, or when the pass fails.
            end = _EndOfPass(self)
            self._end = weakref.ref(end)
            self.parts.clear()  # of a pass that failed
            self._lent.clear()
            torch.autograd.Variable._execution_engine.queue_callback(end)
        self.parts.append(part)
        if lent is not None:
            self._lent.append(lent)

    def push(self) -> None:
        parts, self.parts = self.parts, []
        for dim in {gradient.shape[1] for *_, gradient in parts}:
            self._push([part for part in parts if part[3].shape[1] == dim])
        self._lent.clear()

    def _push(self, parts: list[_Part]) -> None:
        _, _, rows, gradient = parts[0]
        most = sum(len(part[0]) for part in parts)
        room = self._room(most, rows.shape[1], gradient.shape[1], rows.dtype)
        skipped = 0 if self.optimizer.reads_weights() else gradient.shape[1]
        n = _native.rows_add_up(parts, skipped, room.keys, room.rows, room.sums)
        with torch.no_grad():
            changes = self.optimizer.changes(room.rows[:n], room.sums[:n])
        room.pushed = self.worker.push(room.keys[:n], changes, True)

    def _room(self, n: int, length: int, dim: int, dtype: torch.dtype) -> _Room:
        """Room for `n` rows or more, in memory that every pass uses, when the last push from there is done."""
        room = self._rooms.get((length, dim, dtype))
        if room is not None:
            self.worker.wait(room.pushed)
        if room is None or len(room.keys) < n:
            room = self._rooms[length, dim, dtype] = _Room(
                torch.empty(n, dtype=torch.int64), torch.empty(n, length, dtype=dtype), torch.empty(n, dim, dtype=dtype))
        return room


class _EndOfPass:
    def __init__(self, a_pass: _Pass) -> None:
        self.a_pass = a_pass

    def __call__(self) -> None:
        self.a_pass.push()


class _LookUp(torch.autograd.Function):
    """From rows that were pulled to the weights of those that were asked for, and back."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, a_pass: _Pass, keys: Tensor, rows: Tensor, which: Optional[Tensor],
                dim: int, lent: Optional[_Lent]) -> Tensor:
        ctx.a_pass, ctx.keys, ctx.rows, ctx.which, ctx.lent = a_pass, keys, rows, which, lent
        weights = rows.new_empty(len(rows) if which is None else len(which), dim)
        _native.rows_spread(rows, which, weights)
        return weights

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        ctx.a_pass.add((ctx.keys, ctx.which, ctx.rows, gradient.to(ctx.rows.dtype).contiguous()), ctx.lent)
        return (None,) * 7


class Embedding(torch.nn.Module):
    """Rows `first_key` to `first_key + num_embeddings - 1` of `params`, as an embedding.

    `params` must have vectors of `optimizer.length(embedding_dim)` entries there.  `worker` is the worker of `params`
    that this process or thread uses; several embeddings may share it, and an optimizer.

    >>> optimizer = godwit.optim.Adagrad(lr=0.1)
    >>> kv = godwit.Parameters(num_keys=1000, lengths=optimizer.length(8))
    >>> worker = kv.worker()
    >>> words = godwit.nn.Embedding(kv, 1000, 8, worker=worker, optimizer=optimizer)
    >>> words.reset(seed=1)
    >>> before = words.read(torch.tensor([5]))
    >>> words(torch.tensor([[5, 7], [5, 5]])).sum().backward()
    >>> round((words.read(torch.tensor([5])) - before)[0, 0].item(), 5)     # the first step of Adagrad is lr
    -0.1
    """

    def __init__(self, params: Parameters, num_embeddings: int, embedding_dim: int, *, worker: Worker,
                 optimizer: Optimizer, first_key: int = 0) -> None:
        super().__init__()
        if num_embeddings < 1 or embedding_dim < 1:
            raise ValueError(f"an embedding of {num_embeddings} rows of {embedding_dim}; both must be 1 or more")
        if first_key < 0 or first_key + num_embeddings > params.num_keys:
            raise ValueError(f"rows {first_key} to {first_key + num_embeddings - 1}: "
                             f"the parameters have keys 0 to {params.num_keys - 1}")
        self.length = optimizer.length(embedding_dim)
        for key in (first_key, first_key + num_embeddings - 1):
            if params.length(key) != self.length:
                raise ValueError(f"key {key} has {params.length(key)} entries; {type(optimizer).__name__} with "
                                 f"embedding_dim={embedding_dim} needs {self.length}: open Parameters with "
                                 f"lengths=optimizer.length({embedding_dim})")
        self.num_embeddings, self.embedding_dim, self.first_key = num_embeddings, embedding_dim, first_key
        self.params, self.worker, self.optimizer = params, worker, optimizer
        self.dtype = getattr(torch, params.dtype)
        self._pass = _pass_of(worker, optimizer)
        self._anchor = torch.empty(0, requires_grad=True)  # what autograd starts from

    # ---- using -------------------------------------------------------------------------------------------------

    def forward(self, ids: Tensor) -> Tensor:
        """The rows `ids`, in their shape and one more axis."""
        keys, which = self._keys_once(ids)
        lent = self._pass.lend(len(keys), self.length, self.dtype)
        self.worker.pull(keys, lent.rows)
        return self._weights(keys, lent.rows, which, lent).view(*ids.shape, self.embedding_dim)

    def sample(self, handle: Any, n: int) -> tuple[Tensor, Tensor]:
        """The next `n` rows of a prepared sample: their ids, and the rows as `forward` gives them."""
        keys, rows = torch.empty(n, dtype=torch.int64), torch.empty(n, self.length, dtype=self.dtype)
        self.worker.pull_sample(handle, keys, rows)
        ids = keys - self.first_key if self.first_key else keys
        if not torch.is_grad_enabled():
            return ids, rows[:, :self.embedding_dim]
        once, which = _once(keys, 0, self.params.num_keys)
        if which is None:
            return ids, self._weights(keys, rows, None)
        first = torch.empty_like(once).scatter_(0, which, torch.arange(n))
        return ids, self._weights(once, rows[first], which)

    def read(self, ids: Tensor) -> Tensor:
        """The rows as they are, without a gradient."""
        keys, which = self._keys_once(ids)
        rows = torch.empty(len(keys), self.length, dtype=self.dtype)
        self.worker.pull(keys, rows)
        rows = rows[:, :self.embedding_dim]
        return (rows if which is None else rows[which]).reshape(*ids.shape, self.embedding_dim)

    def intent(self, ids: Tensor, start: int, end: Optional[int] = None) -> None:
        """Announce that these rows will be used in clocks `start` to `end`, as Worker.intent does."""
        self.worker.intent(self._keys_once(ids)[0], start, end)

    # ---- first values ------------------------------------------------------------------------------------------

    def reset(self, fill: Optional[Callable[[Tensor, torch.Generator], Any]] = None, *, seed: Optional[int] = None,
              part: int = 0, parts: int = 1) -> None:
        """Give rows their first values: `fill(weights, generator)`, else normal ones of variance 1 / embedding_dim.

        Part number `part` of `parts`, so that workers can share the work: each calls it with its own, between
        `worker.begin_setup()` and `worker.end_setup()`.  With a seed the values are the same for any number of parts.
        """
        if not 0 <= part < parts:
            raise ValueError(f"part {part} of {parts}; parts count from 0")
        generator = torch.Generator()
        if seed is None:
            seed = generator.seed() >> 24
        for start in range(part * _BLOCK, self.num_embeddings, parts * _BLOCK):
            rows = torch.empty(min(_BLOCK, self.num_embeddings - start), self.length, dtype=self.dtype)
            weights = torch.empty(len(rows), self.embedding_dim, dtype=self.dtype)
            generator.manual_seed((seed * 1_000_003 + self.first_key + start) % 2**63)
            if fill is None:
                weights.normal_(std=self.embedding_dim**-0.5, generator=generator)
            else:
                fill(weights, generator)
            rows[:, :self.embedding_dim] = weights
            self.optimizer.fill(rows, self.embedding_dim)
            self.worker.set(torch.arange(start, start + len(rows)) + self.first_key, rows)

    # ---- within ------------------------------------------------------------------------------------------------

    def _keys_once(self, ids: Tensor) -> tuple[Tensor, Optional[Tensor]]:
        """The keys of `ids`, each once, and which of them each entry is; None: they were all different."""
        flat = ids.reshape(-1)
        if flat.dtype != torch.int64:
            if flat.dtype == torch.bool or flat.is_floating_point() or flat.is_complex():
                raise TypeError(f"ids: they are {flat.dtype}, and must be integers, as torch.int64")
            flat = flat.long()
        return _once(flat.contiguous(), self.first_key, self.num_embeddings)

    def _weights(self, keys: Tensor, rows: Tensor, which: Optional[Tensor], lent: Optional[_Lent] = None) -> Tensor:
        return _LookUp.apply(self._anchor, self._pass, keys, rows, which, self.embedding_dim, lent)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, first_key={self.first_key}, optimizer={self.optimizer}"


def _once(ids: Tensor, first_key: int, n_rows: int) -> tuple[Tensor, Optional[Tensor]]:
    """As Embedding._keys_once."""
    keys, which = torch.empty_like(ids), torch.empty_like(ids)
    n = _native.rows_once(ids, first_key, n_rows, keys, which)
    return (keys, None) if n == len(ids) else (keys[:n], which)


_passes: weakref.WeakValueDictionary[tuple[int, int], _Pass] = weakref.WeakValueDictionary()


def _pass_of(worker: Worker, optimizer: Optimizer) -> _Pass:
    """Embeddings that share worker and optimizer push together.  As long as one lives, both do, and keep their ids."""
    found = _passes.get((id(worker), id(optimizer)))
    if found is None:
        found = _passes[id(worker), id(optimizer)] = _Pass(worker, optimizer)
    return found
