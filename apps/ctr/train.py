"""train.py - the training loop: rows of the embedding by intent, the dense part by Allreduce."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from clicks import Part
from measure import auc
from torch import Tensor, nn

from godwit import Worker
from godwit.comm import COMM_WORLD as comm
from godwit.optim import Optimizer
from godwit.training import known_ahead


class Dense:
    """The weights of a module as one long row, with the optimizer's state behind them, as the embedding's rows have it.

    All ranks have the same row and step it alike.  In Parameters it has a key of its own, so that a checkpoint holds all
    that is learned; it is written there when an epoch ends, and read when a program goes on.
    """

    def __init__(self, module: nn.Module, optimizer: Optimizer) -> None:
        weights = list(module.parameters())
        n = sum(weight.numel() for weight in weights)
        self.optimizer, self.gradient = optimizer, torch.zeros(1, n)
        self.row = torch.empty(1, optimizer.length(n))
        optimizer.fill(self.row, n)
        start = 0
        for weight in weights:                            # from now on they are parts of the row
            part = slice(start, start + weight.numel())
            self.row[0, part] = weight.detach().view(-1)
            weight.data, weight.grad = self.row[0, part].view_as(weight), self.gradient[0, part].view_as(weight)
            start = part.stop

    def step(self) -> None:
        """Collective: by the gradients of all ranks together."""
        gradient = comm.Allreduce(self.gradient)
        self.row += self.optimizer.changes(self.row.clone(), gradient)  # which may overwrite both
        self.gradient.zero_()

    def write(self, worker: Worker, key: int) -> None:
        if comm.rank == 0:
            worker.set(torch.tensor([key]), self.row)

    def read(self, worker: Worker, key: int) -> None:
        worker.pull(torch.tensor([key]), self.row)


def train_epoch(job: SimpleNamespace, epoch: int) -> Iterator[tuple[float, int]]:
    """One pass over this rank's share; gives each batch's loss and size.  Ranks meet in every batch."""
    try:
        for batch in announced(job, epoch):
            losses = loss_of(job.model, job.embedding, batch)
            (losses / job.options.batch).backward()       # the embedding's rows are stepped, and pushed
            job.dense.step()
            job.worker.advance_clock()
            yield losses.item() / max(1, len(batch)), len(batch)
    finally:
        job.dense.write(job.worker, job.dense_key)


def loss_of(model: nn.Module, embedding: nn.Module, batch: Part) -> Tensor:
    """The sum of those of a batch."""
    logits = model(batch.numbers, embedding(batch.rows))
    return F.binary_cross_entropy_with_logits(logits, batch.labels, reduction="sum")


def announced(job: SimpleNamespace, epoch: int) -> Iterator[Part]:
    """The batches of this rank, each announced `ahead` batches before it comes."""
    clocks = count(job.worker.current_clock)

    def announce(batch: Part) -> None:
        if job.announces:
            job.embedding.intent(batch.rows, next(clocks))

    return known_ahead(batches(job, epoch), job.options.ahead, announce)


def batches(job: SimpleNamespace, epoch: int) -> Iterator[Part]:
    """This rank's share of each batch.  All ranks shuffle alike, so batches are the same for any number of ranks."""
    chance = torch.Generator().manual_seed(job.options.seed * 1_000_003 + epoch)
    for batch in torch.randperm(job.n_train, generator=chance).split(job.options.batch):
        yield job.clicks.train[batch[batch % comm.size == comm.rank] // comm.size]


@torch.no_grad()
def quality(job: SimpleNamespace, rows_of) -> dict[str, float]:
    """Collective: the AUC of all that is for testing, of which each rank has a share."""
    test = job.clicks.test
    scores = [job.model(test.numbers[some], rows_of(test.rows[some])) for some in torch.arange(len(test)).split(8192)]
    found = torch.stack([torch.cat([torch.empty(0), *scores]), test.labels])
    return {"auc": auc(*comm.Allgather(found, 1))}
