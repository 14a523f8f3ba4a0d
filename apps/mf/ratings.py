"""ratings.py - who rated what how: read from a file, or made up of a few factors and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import torch
from torch import Tensor


@dataclass
class Part:
    """Ratings for training, or for testing."""

    users: Tensor   # [n] int64
    items: Tensor
    values: Tensor  # [n] float32

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, which: Tensor) -> Part:
        return Part(self.users[which], self.items[which], self.values[which])

    def split(self, size: int) -> tuple[Part, ...]:
        """Parts of `size` ratings; the last may have fewer, and there is none if there are no ratings."""
        return tuple(Part(*columns) for columns in zip(*(column.split(size) for column in (self.users, self.items, self.values)))
                     if len(columns[0]) > 0)


@dataclass
class Ratings:
    name: str
    n_users: int
    n_items: int
    train: Part
    test: Part
    floor: Optional[float] = None  # the RMSE of the truth on `test`, where it is known: nobody can be better

    def __str__(self) -> str:
        noise = f", noise floor {self.floor:.4f}" if self.floor is not None else ""
        return (f"{self.name}: {self.n_users:,} users, {self.n_items:,} items, {len(self.train):,} / {len(self.test):,} "
                f"ratings{noise}")


def hold_out(n: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Which of `n` ratings are for training, and which for testing; at least one each."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    n_test = min(n - 1, max(1, round(share * n)))
    return order[n_test:], order[:n_test]


# ---- from files --------------------------------------------------------------------------------------------------


def read(path: Path, test: Optional[Path], share: float, seed: int) -> Ratings:
    """`test` has the ratings for testing; else a `share` of those in `path` is taken."""
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    found = _read_part(path, users, items)
    if test is not None:
        return Ratings(path.stem, train=found, test=_read_part(test, users, items), n_users=len(users), n_items=len(items))
    if len(found) < 2:
        raise SystemExit(f"{path}: it has one rating; there must be one for training and one for testing")
    train, tested = hold_out(len(found), share, seed)
    return Ratings(path.stem, len(users), len(items), found[train], found[tested])


def _read_part(path: Path, users: dict[str, int], items: dict[str, int]) -> Part:
    """Lines of user, item, rating and perhaps a time stamp, between white space.  New names get the next numbers."""
    columns: tuple[list[int], list[int], list[float]] = ([], [], [])
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                words = line.split()
                if not words:
                    continue
                if len(words) not in (3, 4):
                    raise SystemExit(f"{path}, line {number}: {len(words)} columns; they are user, item, rating, and "
                                     "perhaps a time stamp")
                columns[0].append(users.setdefault(words[0], len(users)))
                columns[1].append(items.setdefault(words[1], len(items)))
                columns[2].append(_number(words[2], path, number))
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}") from None
    if not columns[2]:
        raise SystemExit(f"{path}: there are no ratings in it")
    return Part(torch.tensor(columns[0]), torch.tensor(columns[1]), torch.tensor(columns[2]))


def _number(word: str, path: Path, line: int) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SystemExit(f"{path}, line {line}: the rating is {word!r}, which is no number")
    return value


# ---- made up -----------------------------------------------------------------------------------------------------


def generate(n_users: int, n_items: int, n_ratings: int, rank: int, noise: float, zipf: float, share: float,
             seed: int = 0) -> Ratings:
    """Ratings of 3 + biases + the product of factors, all together of variance 1, + noise.

    The i-th user, and the i-th item, occurs in proportion to 1 / i^zipf, but nobody rates anything twice.
    """
    if n_ratings > n_users * n_items / 2:
        raise SystemExit(f"--n {n_ratings}: of {n_users} users and {n_items} items at most half of the "
                         f"{n_users * n_items} pairs can be had")
    chance = torch.Generator().manual_seed(seed)
    users, items = _pairs(n_users, n_items, n_ratings, zipf, chance)
    factor = torch.randn(n_users + n_items, rank, generator=chance, dtype=torch.float64) * (0.6 / rank) ** 0.25
    bias = torch.randn(n_users + n_items, generator=chance, dtype=torch.float64) * 0.2**0.5
    truth = 3 + bias[users] + bias[n_users + items] + (factor[users] * factor[n_users + items]).sum(1)
    error = noise * torch.randn(n_ratings, generator=chance, dtype=torch.float64)
    every = Part(users, items, (truth + error).float())
    train, test = hold_out(n_ratings, share, seed)
    return Ratings("generated", n_users, n_items, every[train], every[test], error[test].square().mean().sqrt().item())


def _pairs(n_users: int, n_items: int, n: int, zipf: float, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    """`n` different pairs.  Who is frequent has any number."""
    numbers = [torch.randperm(size, generator=chance) for size in (n_users, n_items)]
    weights = [torch.arange(1, size + 1, dtype=torch.float64).pow(-zipf).cumsum(0) for size in (n_users, n_items)]
    found = torch.empty(0, dtype=torch.int64)
    while len(found) < n:
        drawn = [torch.searchsorted(sums, torch.rand(n, generator=chance, dtype=torch.float64) * sums[-1])
                 for sums in weights]
        found = torch.unique(torch.cat([found, numbers[0][drawn[0]] * n_items + numbers[1][drawn[1]]]))
    found = found[torch.randperm(len(found), generator=chance)[:n]]
    return found // n_items, found % n_items
