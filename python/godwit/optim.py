"""Optimizers for embeddings in Parameters: what a gradient does to a vector and to the state beside it.

A vector holds a row of weights and, after it, the optimizer's state for that row, so that the state travels with
the row, is saved with it, and needs no place of its own:

    SGD      | weights |
    Adagrad  | weights | sums of squares |
    Adam     | weights | first moments | second moments | steps |

A step is a change that is added, of weights and state alike.  So steps of several workers on one row all count,
as if each had come alone.

    >>> Adagrad(lr=0.1).length(64)
    128
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

__all__ = ["Adagrad", "Adam", "Optimizer", "SGD"]


def _check(name: str, value: float, least: float, below: float = math.inf) -> float:
    value = float(value)
    if not least <= value < below:
        limits = f"at least {least:g}" if below == math.inf else f"from {least:g} to less than {below:g}"
        raise ValueError(f"{name}: {value:g}; it must be {limits}")
    return value


class Optimizer:
    """What all have in common.  `lr` may be changed between steps.

    A new kind needs `length`, `changes`, and `fill` if its state does not begin with zeros; `reads_weights` may save time.
    """

    def __init__(self, lr: float, weight_decay: float = 0.0) -> None:
        self.lr = _check("lr", lr, 0)
        self.weight_decay = _check("weight_decay", weight_decay, 0)

    def length(self, dim: int) -> int:
        """Of the vector of a row with `dim` weights: what Parameters must be opened with."""
        raise NotImplementedError

    def fill(self, rows: Tensor, dim: int) -> None:
        """Set the state in new `rows` to what it begins with."""
        rows[:, dim:] = 0

    def changes(self, rows: Tensor, gradient: Tensor) -> Tensor:
        """What is to be added to `rows` [n, length(dim)], given the gradient [n, dim] of their weights.

        Both may be overwritten, and what is returned may be in their memory.
        """
        raise NotImplementedError

    def reads_weights(self) -> bool:
        """Whether `changes` looks at the weights.  If not, anything may be in their place."""
        return True

    def _decayed(self, weights: Tensor, gradient: Tensor) -> Tensor:
        return gradient.add(weights, alpha=self.weight_decay) if self.weight_decay else gradient

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"


class SGD(Optimizer):
    """w -= lr g"""

    def reads_weights(self) -> bool:
        return self.weight_decay > 0

    def length(self, dim: int) -> int:
        return dim

    def changes(self, rows: Tensor, gradient: Tensor) -> Tensor:
        return self._decayed(rows, gradient).mul(-self.lr)


class Adagrad(Optimizer):
    """s += g^2,  w -= lr g / (sqrt(s) + eps)"""

    def __init__(self, lr: float = 0.01, eps: float = 1e-10, weight_decay: float = 0.0,
                 initial_accumulator_value: float = 0.0) -> None:
        super().__init__(lr, weight_decay)
        self.eps = _check("eps", eps, 0)
        self.initial_accumulator_value = _check("initial_accumulator_value", initial_accumulator_value, 0)

    def reads_weights(self) -> bool:
        return self.weight_decay > 0

    def length(self, dim: int) -> int:
        return 2 * dim

    def fill(self, rows: Tensor, dim: int) -> None:
        rows[:, dim:] = self.initial_accumulator_value

    def changes(self, rows: Tensor, gradient: Tensor) -> Tensor:
        dim = gradient.shape[1]
        weights, sums = rows[:, :dim], rows[:, dim:]
        gradient = self._decayed(weights, gradient)
        torch.addcmul(sums, gradient, gradient, out=weights)
        torch.div(gradient, weights.sqrt_().add_(self.eps), out=weights).mul_(-self.lr)
        torch.mul(gradient, gradient, out=sums)
        return rows


class Adam(Optimizer):
    """Adam, each row with its own count of steps: it is stepped when it is used.

    m += (1 - b1) (g - m),  v += (1 - b2) (g^2 - v),  w -= lr m' / (sqrt(v') + eps), where m' and v' are
    corrected for having begun with zeros.
    """

    def __init__(self, lr: float = 0.001, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0) -> None:
        super().__init__(lr, weight_decay)
        self.betas = (_check("betas[0]", betas[0], 0, 1), _check("betas[1]", betas[1], 0, 1))
        self.eps = _check("eps", eps, 0)

    def reads_weights(self) -> bool:
        return self.weight_decay > 0

    def length(self, dim: int) -> int:
        return 3 * dim + 1

    def changes(self, rows: Tensor, gradient: Tensor) -> Tensor:
        dim = gradient.shape[1]
        weights, first, second, steps = rows.split([dim, dim, dim, 1], 1)
        gradient = self._decayed(weights, gradient)
        out = torch.empty_like(rows)
        change, first_change, second_change, step_change = out.split([dim, dim, dim, 1], 1)
        torch.sub(gradient, first, out=first_change).mul_(1 - self.betas[0])
        torch.sub(gradient * gradient, second, out=second_change).mul_(1 - self.betas[1])
        step_change.fill_(1)
        steps = steps + 1
        m = (first + first_change) / (1 - torch.pow(self.betas[0], steps))
        v = (second + second_change) / (1 - torch.pow(self.betas[1], steps))
        torch.div(m, v.sqrt_().add_(self.eps), out=change).mul_(-self.lr)
        return out


def by_name(name: str, **options: Any) -> Optimizer:
    """The optimizer of that name, for programs that let their users choose: "sgd", "adagrad" or "adam"."""
    kinds = {"sgd": SGD, "adagrad": Adagrad, "adam": Adam}
    if name.lower() not in kinds:
        raise ValueError(f"optimizer: {name!r} is none of {', '.join(kinds)}")
    return kinds[name.lower()](**options)
