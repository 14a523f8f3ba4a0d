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
from typing import Any, Callable, Optional

import torch
from torch import Tensor

from .. import Parameters, Worker
from ..optim import Optimizer

__all__ = ["Embedding"]

_BLOCK = 1024  # rows that are given their first values together, from one seed


class _Pass:
    """The gradients of a backward pass, until it is over.  Of one worker and one optimizer."""

    def __init__(self, worker: Worker, optimizer: Optimizer) -> None:
        self.worker, self.optimizer = worker, optimizer
        self.parts: list[tuple[Tensor, Tensor, Tensor]] = []  # keys, each once; their rows as pulled; gradients
        self._end: Optional[weakref.ref[_EndOfPass]] = None

    def add(self, keys: Tensor, rows: Tensor, gradient: Tensor) -> None:
        if self._end is None or self._end() is None:  # the first of a pass
            # The engine holds what it is to call when the pass is done, and lets go of it then, or when the pass fails.
            end = _EndOfPass(self)
            self._end = weakref.ref(end)
            self.parts.clear()  # of a pass that failed
            torch.autograd.Variable._execution_engine.queue_callback(end)
        self.parts.append((keys, rows, gradient))

    def push(self) -> None:
        parts, self.parts = self.parts, []
        for dim in {gradient.shape[1] for _, _, gradient in parts}:
            self._push([part for part in parts if part[2].shape[1] == dim])

    def _push(self, parts: list[tuple[Tensor, Tensor, Tensor]]) -> None:
        keys, rows, gradient = parts[0]
        if len(parts) > 1:
            all_keys = torch.cat([part[0] for part in parts])
            keys, which = torch.unique(all_keys, return_inverse=True)
            if len(keys) < len(all_keys):
                gradient = gradient.new_zeros(len(keys), gradient.shape[1])
                gradient.index_add_(0, which, torch.cat([part[2] for part in parts]))
                first = torch.empty_like(keys).scatter_(0, which, torch.arange(len(which)))
                rows = torch.cat([part[1] for part in parts])[first]
            else:
                keys = all_keys
                rows, gradient = (torch.cat([part[i] for part in parts]) for i in (1, 2))
        with torch.no_grad():
            self.worker.push(keys, self.optimizer.changes(rows, gradient), True)


class _EndOfPass:
    def __init__(self, a_pass: _Pass) -> None:
        self.a_pass = a_pass

    def __call__(self) -> None:
        self.a_pass.push()


class _LookUp(torch.autograd.Function):
    """From rows that were pulled to the weights of those that were asked for, and back."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, a_pass: _Pass, keys: Tensor, rows: Tensor, which: Optional[Tensor],
                dim: int) -> Tensor:
        ctx.a_pass, ctx.keys, ctx.rows, ctx.which = a_pass, keys, rows, which
        weights = rows[:, :dim]
        return weights.contiguous() if which is None else weights.index_select(0, which)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        if ctx.which is not None:
            sums = gradient.new_zeros(len(ctx.keys), gradient.shape[1])
            gradient = sums.index_add_(0, ctx.which, gradient)
        ctx.a_pass.add(ctx.keys, ctx.rows, gradient)
        return (None,) * 6


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
        rows = self._pull(keys)
        return self._weights(keys, rows, which).view(*ids.shape, self.embedding_dim)

    def sample(self, handle: Any, n: int) -> tuple[Tensor, Tensor]:
        """The next `n` rows of a prepared sample: their ids, and the rows as `forward` gives them."""
        keys, rows = torch.empty(n, dtype=torch.int64), torch.empty(n, self.length, dtype=self.dtype)
        self.worker.pull_sample(handle, keys, rows)
        ids = keys - self.first_key if self.first_key else keys
        if not torch.is_grad_enabled():
            return ids, rows[:, :self.embedding_dim]
        once, which = torch.unique(keys, return_inverse=True)
        if len(once) == n:
            return ids, self._weights(keys, rows, None)
        first = torch.empty_like(once).scatter_(0, which, torch.arange(n))
        return ids, self._weights(once, rows[first], which)

    def read(self, ids: Tensor) -> Tensor:
        """The rows as they are, without a gradient."""
        keys, which = self._keys_once(ids)
        rows = self._pull(keys)[:, :self.embedding_dim]
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
        once, which = torch.unique(flat, return_inverse=True)
        if len(once) > 0 and not (0 <= once[0] and once[-1] < self.num_embeddings):
            wrong = once[0].item() if once[0] < 0 else once[-1].item()
            raise IndexError(f"ids: {wrong} is no row; they go from 0 to {self.num_embeddings - 1}")
        if len(once) == len(flat):
            once, which = flat, None
        return (once + self.first_key if self.first_key else once.contiguous()), which

    def _pull(self, keys: Tensor) -> Tensor:
        rows = torch.empty(len(keys), self.length, dtype=self.dtype)
        self.worker.pull(keys, rows)
        return rows

    def _weights(self, keys: Tensor, rows: Tensor, which: Optional[Tensor]) -> Tensor:
        return _LookUp.apply(self._anchor, self._pass, keys, rows, which, self.embedding_dim)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, first_key={self.first_key}, optimizer={self.optimizer}"


_passes: weakref.WeakValueDictionary[tuple[int, int], _Pass] = weakref.WeakValueDictionary()


def _pass_of(worker: Worker, optimizer: Optimizer) -> _Pass:
    """Embeddings that share worker and optimizer push together.  As long as one lives, both do, and keep their ids."""
    found = _passes.get((id(worker), id(optimizer)))
    if found is None:
        found = _passes[id(worker), id(optimizer)] = _Pass(worker, optimizer)
    return found
