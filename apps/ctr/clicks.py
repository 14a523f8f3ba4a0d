"""clicks.py - examples and whether they were clicked on: Criteo's files, or made up by a model that is known.

An example has 13 numbers and 26 categories.  A category is any text; it is hashed, together with its field, into one of the
rows of the embedding.  Different ones may meet in a row: that is the price for a table of fixed size.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import torch
from measure import auc
from torch import Tensor

N_NUMBERS, N_FIELDS = 13, 26


@dataclass
class Part:
    """Impressions for training, or for testing."""

    labels: Tensor   # [n] float32, 1: clicked on
    numbers: Tensor  # [n, 13] float32, as log(1 + x)
    rows: Tensor     # [n, 26] int64, of the embedding

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, which: Tensor | slice) -> Part:
        return Part(self.labels[which], self.numbers[which], self.rows[which])


@dataclass
class Clicks:
    name: str
    train: Part                   # this rank's share: number i of all is number i // size of rank i % size
    test: Part
    best: Optional[float] = None  # the AUC of the truth on all that is for testing, where it is known


def hashed(values: Tensor, n_rows: int) -> Tensor:
    """The rows of values [n, fields] from 0 to 2^32 - 1.  Equal ones of different fields have different rows, but for chance."""
    mixed = values + (torch.arange(1, values.shape[1] + 1) << 32)
    for _ in range(2):
        mixed = (mixed ^ (mixed >> 29)) * 0x2545F4914F6CDD1D
    return ((mixed >> 20) & (2**43 - 1)) % n_rows


# ---- from files --------------------------------------------------------------------------------------------------


def read(path: Path, test: Optional[Path], n_rows: int, share: float, rank: int, size: int) -> Clicks:
    """`test` has what is for testing; else it is the last `share` of `path`, as lines are in the order of time."""
    n = _count_lines(path)
    n_train = n if test is not None else n - max(1, round(share * n))
    train, tail = _read_part(path, n_rows, n_train, rank, size)
    held_out = tail if test is None else _read_part(test, n_rows, _count_lines(test), rank, size)[0]
    return Clicks(path.stem, train, held_out)


def _count_lines(path: Path) -> int:
    try:
        with path.open("rb") as file:
            n = sum(1 for _ in file)
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}") from None
    if n < 2:
        raise SystemExit(f"{path}: it has {n} lines; at least 2 are needed")
    return n


def _read_part(path: Path, n_rows: int, n_first: int, rank: int, size: int) -> tuple[Part, Part]:
    """Every `size`-th line from number `rank` on: of the first `n_first` lines, and of those behind them."""
    parts: tuple[list, list] = ([], [])
    with path.open("rb") as file:
        for number, line in enumerate(file):
            if number % size == rank:
                parts[number >= n_first].append(_parse(line.rstrip(b"\r\n").split(b"\t"), path, number + 1))
    return tuple(_to_part(found, n_rows) for found in parts)


def _parse(words: list[bytes], path: Path, line: int) -> tuple[float, list[int], list[int]]:
    if len(words) != 1 + N_NUMBERS + N_FIELDS:
        raise SystemExit(f"{path}, line {line}: {len(words)} columns between tabs; they are the label, {N_NUMBERS} numbers and "
                         f"{N_FIELDS} categories")
    if words[0] not in (b"0", b"1"):
        raise SystemExit(f"{path}, line {line}: the label is {words[0].decode(errors='replace')!r}, neither 0 nor 1")
    try:
        numbers = [int(word or 0) for word in words[1:1 + N_NUMBERS]]
    except ValueError as error:
        raise SystemExit(f"{path}, line {line}: columns 2 to {1 + N_NUMBERS} are integers or empty: {error}") from None
    return float(words[0]), numbers, [zlib.crc32(word) for word in words[1 + N_NUMBERS:]]


def _to_part(found: list[tuple[float, list[int], list[int]]], n_rows: int) -> Part:
    labels, numbers, values = (list(column) for column in zip(*found)) if found else ([], [], [])
    return Part(torch.tensor(labels), squashed(torch.tensor(numbers, dtype=torch.float64).view(-1, N_NUMBERS)),
                hashed(torch.tensor(values, dtype=torch.int64).view(-1, N_FIELDS), n_rows))


def squashed(numbers: Tensor) -> Tensor:
    """Counts go over many orders of magnitude.  What is missing counts as 0, and so does what is below."""
    return numbers.clamp(min=0).log1p().float()


# ---- made up -----------------------------------------------------------------------------------------------------

DIM, PAIRS, AT_ONCE = 4, 0.4, 16384
SPREAD, OFFSET = 1.5, -1.0  # of the logits: about a third is clicked on


def generate(n: int, n_values: int, n_rows: int, share: float, seed: int, rank: int, size: int) -> Clicks:
    """Clicks by a factorisation machine: each value has a weight and a vector, and so have the numbers.

    Fields have from 4 to `n_values` values, of which the i-th occurs in proportion to 1 / i.
    """
    chance = torch.Generator().manual_seed(seed)
    sizes = torch.logspace(2, torch.tensor(n_values).log2().item(), N_FIELDS, base=2).long().tolist()
    values = torch.stack([_zipf(field, n, chance) for field in sizes], 1)
    numbers = squashed(torch.randn(n, N_NUMBERS, generator=chance, dtype=torch.float64).mul_(1.5).exp_().floor_())
    logits = _planted(values, numbers, sizes, chance)
    labels = (torch.rand(n, generator=chance) < torch.sigmoid(logits)).float()
    every = Part(labels, numbers, hashed(values, n_rows))
    n_train = n - max(1, round(share * n))
    return Clicks("generated", every[rank:n_train:size], every[n_train + rank::size], auc(logits[n_train:], labels[n_train:]))


def _zipf(n_values: int, n: int, chance: torch.Generator) -> Tensor:
    sums = (1 / torch.arange(1, n_values + 1, dtype=torch.float64)).cumsum(0)
    return torch.searchsorted(sums, torch.rand(n, generator=chance, dtype=torch.float64) * sums[-1])


def _planted(values: Tensor, numbers: Tensor, sizes: list[int], chance: torch.Generator) -> Tensor:
    """The logits of the truth: weights, products of all pairs of vectors (PAIRS: their variance beside that), numbers."""
    first = torch.tensor([0, *sizes]).cumsum(0)
    weights = torch.randn(first[-1].item(), generator=chance)
    vectors = torch.randn(first[-1].item(), DIM, generator=chance) * (2 * PAIRS / (DIM * N_FIELDS)) ** 0.25
    slopes = torch.randn(N_NUMBERS, generator=chance)
    logits = []
    for some, counts in zip(values.split(AT_ONCE), numbers.split(AT_ONCE)):
        at = some + first[:-1]
        vector = vectors[at]
        pairs = (vector.sum(1).square() - vector.square().sum(1)).sum(1) / 2
        logits.append(weights[at].sum(1) + pairs + counts @ slopes)
    every = torch.cat(logits)
    return (every - every.mean()) / every.std() * SPREAD + OFFSET
