"""models.py - from rows of the embedding to a logit: what they have of dense weights.

The rows of an example are [26, dim + 1]: of each category a vector and, as its last entry, a weight that is simply added.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FactorizationMachine(nn.Module):
    """Weights, and the products of all pairs of vectors; the numbers together have one vector more."""

    def __init__(self, n_numbers: int, n_fields: int, dim: int, hidden: int) -> None:
        super().__init__()
        self.weights = nn.Linear(n_numbers, 1)
        self.vector = nn.Linear(n_numbers, dim)

    def forward(self, numbers: Tensor, rows: Tensor) -> Tensor:
        vectors = torch.cat([rows[:, :, :-1], self.vector(numbers)[:, None]], 1)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        return self.weights(numbers).view(-1) + rows[:, :, -1].sum(1) + pairs


class Dlrm(nn.Module):
    """The numbers become a vector by a small network, and another looks at the products of all pairs of vectors."""

    def __init__(self, n_numbers: int, n_fields: int, dim: int, hidden: int) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(n_numbers, hidden), nn.ReLU(), nn.Linear(hidden, dim), nn.ReLU())
        first, second = torch.tril_indices(n_fields + 1, n_fields + 1, -1)
        self.pairs = first * (n_fields + 1) + second      # where they are in the matrix of all products
        self.top = nn.Sequential(nn.Linear(dim + len(self.pairs), hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, numbers: Tensor, rows: Tensor) -> Tensor:
        bottom = self.bottom(numbers)
        vectors = torch.cat([rows[:, :, :-1], bottom[:, None]], 1)
        pairs = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return self.top(torch.cat([bottom, pairs], 1)).view(-1) + rows[:, :, -1].sum(1)


MODELS = {"fm": FactorizationMachine, "dlrm": Dlrm}
