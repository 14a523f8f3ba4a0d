"""models.py - what a triple is worth.

Each model makes a query of an entity and a relation, and compares it with entities that may be the other end:

    score(head, relation, tail)  =  compare(ask(head, relation), tail)              which tail?
                                 =  compare(ask(tail, relation, back=True), head)   which head?

The greater a score, the more likely the triple.  A query is compared with one entity for each (`one`) or with all of
a list (`all`): for models that multiply, that is a matrix product.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Model:
    """`dim` is the number of entries of an entity; `relation_dim` that of a relation."""

    multiplies = True  # else it measures distances
    is_complex = False

    def __init__(self, dim: int, gamma: float = 0.0) -> None:
        if self.is_complex and dim % 2:
            raise SystemExit(f"--dim {dim}: {type(self).__name__} needs an even one, for real and imaginary parts")
        self.dim, self.gamma, self.relation_dim = dim, gamma, dim

    def ask(self, entity: Tensor, relation: Tensor, back: bool = False) -> Tensor:
        raise NotImplementedError

    def one(self, query: Tensor, entity: Tensor) -> Tensor:
        """[n, dim] and [n, dim] -> [n]"""
        return (query * entity).sum(-1)

    def all(self, query: Tensor, entities: Tensor) -> Tensor:
        """[n, dim] and [m, dim] -> [n, m]"""
        return query @ entities.T

    def size(self, row: Tensor) -> Tensor:
        """The absolute values of a row's entries, which regularisation makes small."""
        return _modulus(row) if self.is_complex else row.abs()


class DistMult(Model):
    """sum of h r t: symmetric relations only."""

    def ask(self, entity: Tensor, relation: Tensor, back: bool = False) -> Tensor:
        return entity * relation


class ComplEx(Model):
    """Re(sum of h r conj(t)), in complex numbers: the first half of a row is real, the second imaginary."""

    is_complex = True

    def ask(self, entity: Tensor, relation: Tensor, back: bool = False) -> Tensor:
        a, b = entity.chunk(2, -1)
        c, d = relation.chunk(2, -1)
        if back:
            d = -d
        return torch.cat([a * c - b * d, a * d + b * c], -1)


class TransE(Model):
    """gamma - |h + r - t|, the sum of absolute differences."""

    multiplies = False

    def ask(self, entity: Tensor, relation: Tensor, back: bool = False) -> Tensor:
        return entity - relation if back else entity + relation

    def one(self, query: Tensor, entity: Tensor) -> Tensor:
        return self.gamma - (query - entity).abs().sum(-1)

    def all(self, query: Tensor, entities: Tensor) -> Tensor:
        return self.gamma - torch.cdist(query, entities, p=1)


class RotatE(Model):
    """gamma - |h r - t| in complex numbers, where r turns each entry by an angle."""

    multiplies, is_complex = False, True
    AT_ONCE = 1 << 24  # entries of the differences that are in memory together

    def __init__(self, dim: int, gamma: float = 0.0) -> None:
        super().__init__(dim, gamma)
        self.relation_dim = dim // 2

    def ask(self, entity: Tensor, relation: Tensor, back: bool = False) -> Tensor:
        a, b = entity.chunk(2, -1)
        c, d = torch.cos(relation), torch.sin(-relation if back else relation)
        return torch.cat([a * c - b * d, a * d + b * c], -1)

    def one(self, query: Tensor, entity: Tensor) -> Tensor:
        return self.gamma - _modulus(query - entity).sum(-1)

    def all(self, query: Tensor, entities: Tensor) -> Tensor:
        n = max(1, self.AT_ONCE // max(1, entities.numel()))
        return torch.cat([self.gamma - _modulus(part[:, None] - entities).sum(-1) for part in query.split(n)])


def _modulus(row: Tensor) -> Tensor:
    a, b = row.chunk(2, -1)
    return (a * a + b * b + 1e-30).sqrt()


MODELS = {model.__name__.lower(): model for model in (ComplEx, DistMult, TransE, RotatE)}
