"""WholeEmbedding: an embedding whose rows live in whole memory, and the optimizers of its rows.

    embedding = godwit.nn.WholeEmbedding(1_000_000, 64)      # collective
    optimizer = godwit.nn.LazyAdam(embedding, lr=0.01)       # collective
    for batch in batches:                                    # each rank has its own
        loss(embedding(batch)).backward()
        optimizer.step()                                     # collective

A backward pass only notes which rows have which gradients.  step() brings them to the ranks that have the
rows, where they are summed over duplicates and ranks; then each touched row is stepped once, as torch.optim
would step it if it were a parameter of its own.  Rows that were not touched cost nothing.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Optional, Sequence, Union

import torch

from .. import memory
from .._native import InvalidType, InvalidValue
from ..comm import Communicator
from ..memory.tensor import as_indices

_ROWS_AT_ONCE = 4096  # drawn from one seed, so that rows do not depend on the number of ranks


class WholeEmbedding(torch.nn.Module):
    """Rows by number, as torch.nn.Embedding, but every rank sees all rows, and each has a part of them.

    weight is a godwit.memory.Memory.  New rows are normally distributed, the same for any number of ranks;
    `init` may be a function that fills a tensor of rows in place instead.  Making one is collective; calling
    it is so only for kind="distributed" over nodes.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: torch.dtype = torch.float32,
                 kind: str = "continuous", comm: Optional[Communicator] = None,
                 rows_per_rank: Optional[Sequence[int]] = None,
                 init: Optional[Callable[[torch.Tensor], Any]] = None):
        super().__init__()
        if dtype not in (torch.float32, torch.float64):
            raise InvalidType(f"dtype: {dtype} is not possible; rows that are trained are float32 or float64")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = memory.empty((num_embeddings, embedding_dim), dtype, kind, comm, rows_per_rank)
        self._touched: list[tuple[torch.Tensor, torch.Tensor]] = []  # rows and gradients since the last step
        self._anchor = torch.empty(0, requires_grad=True)
        self.reset_parameters(init)

    def reset_parameters(self, init: Optional[Callable[[torch.Tensor], Any]] = None) -> None:
        """Collective: draw all rows anew, or let `init` fill each rank's in place."""
        local, first = self.weight.local, self.weight.local_start
        seed = self.weight.comm.Bcast_(torch.tensor([torch.initial_seed() % 2**62]), 0).item()
        if init is not None:
            init(local)
        else:
            for block in range(first // _ROWS_AT_ONCE, -(-(first + len(local)) // _ROWS_AT_ONCE)):
                draw = torch.Generator().manual_seed((seed * 0x9E3779B97F4A7C15 + block) % 2**63)
                n = min(_ROWS_AT_ONCE, self.num_embeddings - block * _ROWS_AT_ONCE)
                rows = torch.randn((n, self.embedding_dim), generator=draw, dtype=local.dtype)
                start = block * _ROWS_AT_ONCE
                low, high = max(first, start), min(first + len(local), start + n)
                local[low - first:high - first] = rows[low - start:high - start]
        self.weight.comm.Barrier()

    def forward(self, indices: Any) -> torch.Tensor:
        rows = as_indices(indices)
        if torch.is_grad_enabled():
            return _Lookup.apply(self._anchor, self, rows)
        return self.weight.gather(rows)

    def gradients(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What this rank has noted since the last step: rows by number, and their gradients."""
        if not self._touched:
            return torch.empty(0, dtype=torch.int64), torch.empty((0, self.embedding_dim), dtype=self.weight.dtype)
        rows, gradients = zip(*self._touched)
        return torch.cat(rows), torch.cat(gradients)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget what was noted."""
        super().zero_grad(set_to_none)
        self._touched.clear()

    def save(self, path: Any) -> None:
        """Collective: the rows, as a .npy file or raw."""
        self.weight.save(path)

    def load(self, path: Any) -> None:
        """Collective: the rows of a file that any number of ranks wrote."""
        self.weight.load(path)

    def close(self) -> None:
        """Give the rows back."""
        self.weight.close()

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, kind={self.weight.kind!r}"


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, embedding: WholeEmbedding, rows: torch.Tensor) -> torch.Tensor:
        ctx.embedding, ctx.rows = embedding, rows.reshape(-1).to(torch.int64, copy=True)
        return embedding.weight.gather(rows)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        noted = gradient.detach().reshape(-1, ctx.embedding.embedding_dim).to(ctx.embedding.weight.dtype, copy=True)
        ctx.embedding._touched.append((ctx.rows, noted))
        return None, None, None


class RowOptimizer:
    """What the optimizers share.  Making one, step(), save() and load() are collective.

    lr and the other settings are attributes that may be changed between steps, on all ranks alike.
    """

    _kind: int
    _states: tuple[str, ...] = ()
    _counts = False

    def __init__(self, embeddings: Union[WholeEmbedding, Sequence[WholeEmbedding]], lr: float, weight_decay: float = 0.0):
        self.embeddings = [embeddings] if isinstance(embeddings, WholeEmbedding) else list(embeddings)
        for embedding in self.embeddings:
            if not isinstance(embedding, WholeEmbedding):
                raise InvalidType(f"embeddings: {embedding!r} is no WholeEmbedding")
        self.lr, self.weight_decay = lr, weight_decay
        self.eps = self.lr_decay = 0.0
        self.alpha = self.beta1 = self.beta2 = 0.0
        self.state: list[dict[str, memory.Memory]] = [self._open_state(one.weight) for one in self.embeddings]

    def _open_state(self, weight: memory.Memory) -> dict[str, memory.Memory]:
        like = {"kind": weight.kind, "comm": weight.comm, "rows_per_rank": weight.rows_per_rank}
        state = {name: memory.zeros(weight.shape, weight.dtype, **like) for name in self._states}
        if self._counts:
            state["step"] = memory.zeros(weight.shape[0], torch.int64, **like)
        return state

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients that were noted."""
        for embedding in self.embeddings:
            embedding.zero_grad(set_to_none)

    def step(self) -> None:
        """Collective: step every row that a backward pass of any rank has touched since the last step, once."""
        settings = (self.lr, self.weight_decay, self.eps, self.lr_decay, self.alpha, self.beta1, self.beta2)
        for embedding, state in zip(self.embeddings, self.state):
            rows, gradients = embedding.gradients()
            natives = [state[name]._native for name in self._states] + [None, None]
            counts = state["step"]._native if self._counts else None
            embedding.weight._native.step(self._kind, settings, natives[0], natives[1], counts, rows, gradients)
            embedding._touched.clear()

    def _files(self, directory: Any) -> list[tuple[memory.Memory, str]]:
        files = []
        for i, (embedding, state) in enumerate(zip(self.embeddings, self.state)):
            for name, part in {"weight": embedding.weight, **state}.items():
                files.append((part, os.path.join(os.fspath(directory), f"embedding{i}.{name}.npy")))
        return files

    def save(self, directory: Any) -> None:
        """Collective: rows and state, as .npy files in a directory."""
        os.makedirs(directory, exist_ok=True)
        for part, path in self._files(directory):
            part.save(path)
        if not self.embeddings or self.embeddings[0].weight.comm.rank == 0:
            with open(os.path.join(directory, "optimizer.json"), "w") as file:
                json.dump({"optimizer": type(self).__name__, "embeddings": len(self.embeddings)}, file)
        for embedding in self.embeddings:
            embedding.weight.comm.Barrier()

    def load(self, directory: Any) -> None:
        """Collective: the same, written by any number of ranks."""
        with open(os.path.join(directory, "optimizer.json")) as file:
            told = json.load(file)
        mine = {"optimizer": type(self).__name__, "embeddings": len(self.embeddings)}
        if told != mine:
            raise InvalidValue(f"'{os.fspath(directory)}' holds the state of {told}, this is {mine}")
        for part, path in self._files(directory):
            part.load(path)

    def close(self) -> None:
        """Give the state back; the rows stay."""
        for state in self.state:
            for part in state.values():
                part.close()


class SGD(RowOptimizer):
    """row -= lr * (gradient + weight_decay * row)"""

    _kind = 0

    def __init__(self, embeddings: Any, lr: float = 0.01, weight_decay: float = 0.0):
        super().__init__(embeddings, lr, weight_decay)


class AdaGrad(RowOptimizer):
    """As torch.optim.Adagrad; the state `sum` begins with initial_accumulator_value."""

    _kind = 1
    _states = ("sum",)
    _counts = True

    def __init__(self, embeddings: Any, lr: float = 0.01, lr_decay: float = 0.0, weight_decay: float = 0.0,
                 initial_accumulator_value: float = 0.0, eps: float = 1e-10):
        super().__init__(embeddings, lr, weight_decay)
        self.lr_decay, self.eps = lr_decay, eps
        if initial_accumulator_value != 0:
            for state in self.state:
                state["sum"].fill_(initial_accumulator_value)


class RMSProp(RowOptimizer):
    """As torch.optim.RMSprop, without momentum."""

    _kind = 2
    _states = ("square_avg",)

    def __init__(self, embeddings: Any, lr: float = 0.01, alpha: float = 0.99, eps: float = 1e-8,
                 weight_decay: float = 0.0):
        super().__init__(embeddings, lr, weight_decay)
        self.alpha, self.eps = alpha, eps


class LazyAdam(RowOptimizer):
    """As torch.optim.Adam, where each row counts its own steps and rests when it is not touched."""

    _kind = 3
    _states = ("exp_avg", "exp_avg_sq")
    _counts = True

    def __init__(self, embeddings: Any, lr: float = 0.001, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0):
        super().__init__(embeddings, lr, weight_decay)
        (self.beta1, self.beta2), self.eps = betas, eps
