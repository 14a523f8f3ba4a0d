"""train.py - the model, and the two ways to go through the ratings.

In both a rank has the ratings of its own users, so what ranks compete for are items:

    blocks   items are in as many blocks as there are ranks.  An epoch has as many turns: in each a rank has one block to
             itself, which it localizes, and then the blocks go round.  Ranks wait for each other between turns.
    intent   batches are in any order.  Each is announced before it comes; nobody waits for anybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace

import torch
from ratings import Part
from torch import Tensor

from godwit.comm import COMM_WORLD as comm
from godwit.training import known_ahead


def train_epoch(job: SimpleNamespace, epoch: int) -> Iterator[tuple[float, int]]:
    """One pass over this rank's ratings; gives each batch's mean squared error and size."""
    options = job.options
    job.optimizer.lr = options.lr / (1 + options.decay * (epoch - 1))
    chance = torch.Generator().manual_seed((options.seed * 1_000_003 + epoch) * 1_009 + comm.rank)
    for batch in (by_blocks if options.mode == "blocks" else announced)(job, chance):
        rows = job.rows(job.keys(batch))
        error = predict(job, rows) - batch.values
        loss = (error.square().sum() + options.l2 * rows.square().sum()) / 2
        loss.backward()                                  # gradients become changes of the rows, and are pushed
        job.worker.advance_clock()
        yield error.detach().square().mean().item(), len(batch)


def predict(job: SimpleNamespace, rows: Tensor) -> Tensor:
    """Of the rows [2, n, rank + 1] of users and items; the last entry of each is its bias."""
    user, item = rows
    return job.mean + user[:, -1] + item[:, -1] + (user[:, :-1] * item[:, :-1]).sum(1)


@torch.no_grad()
def rmse(job: SimpleNamespace, part: Part) -> float:
    """Collective: each rank takes its share of the ratings."""
    sums = torch.zeros(2, dtype=torch.float64)
    for batch in part[torch.arange(comm.rank, len(part), comm.size)].split(65536):
        error = predict(job, job.rows.read(job.keys(batch))) - batch.values
        sums += torch.tensor([error.double().square().sum(), len(batch)])
    total, n = comm.Allreduce(sums)
    return (total / n).sqrt().item()


# ---- the order of ratings ----------------------------------------------------------------------------------------


def deal(ids: Tensor, n: int, parts: int) -> Tensor:
    """A part for each of `n` users or items, so that parts have about as many ratings: to and fro, the frequent first."""
    turn = torch.arange(n) % (2 * parts)
    part = torch.empty(n, dtype=torch.int64)
    part[torch.bincount(ids, minlength=n).argsort(descending=True)] = torch.minimum(turn, 2 * parts - 1 - turn)
    return part


def announced(job: SimpleNamespace, chance: torch.Generator) -> Iterator[Part]:
    """This rank's ratings, each batch announced `ahead` batches before it comes."""
    clocks = count(job.worker.current_clock)

    def announce(batch: Part) -> None:
        if job.announces:
            job.rows.intent(job.keys(batch), next(clocks))

    return known_ahead(shuffled(job, job.mine, chance), job.options.ahead, announce)


def by_blocks(job: SimpleNamespace, chance: torch.Generator) -> Iterator[Part]:
    """This rank's ratings, block by block of the items."""
    job.worker.localize(job.my_users)
    turn = 0
    try:
        for turn in range(comm.size):
            items, ratings = job.blocks[(comm.rank + turn) % comm.size]
            job.worker.localize(items)
            yield from shuffled(job, ratings, chance)
            meet(job)
    except GeneratorExit:                                # stopped; others may be on their way to these
        for _ in range(turn, comm.size):
            meet(job)


def meet(job: SimpleNamespace) -> None:
    """What was pushed is done, on all ranks.  There are no copies here, so nothing else is to be waited for."""
    job.worker.wait_all()
    job.worker.barrier()


def shuffled(job: SimpleNamespace, part: Part, chance: torch.Generator) -> tuple[Part, ...]:
    return part[torch.randperm(len(part), generator=chance)].split(job.options.batch)
