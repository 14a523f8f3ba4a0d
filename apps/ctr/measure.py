"""measure.py - how well clicks are foretold."""

from __future__ import annotations

import torch
from torch import Tensor


def auc(scores: Tensor, labels: Tensor) -> float:
    """The probability that one that was clicked on scores higher than one that was not; of equal scores half count.

    Exact: the sum of the ranks of those that were clicked on, where equal scores share the mean of theirs.  Without one
    of either kind it is not a number.
    """
    _, place, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    mean_rank = last - (counts.double() - 1) / 2
    clicked = labels > 0.5
    n_clicked, n_other = clicked.sum().double(), (~clicked).sum().double()
    return ((mean_rank[place[clicked]].sum() - n_clicked * (n_clicked + 1) / 2) / (n_clicked * n_other)).item()
