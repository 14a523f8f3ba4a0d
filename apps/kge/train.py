"""train.py - the training loop, and what a batch is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from godwit.comm import COMM_WORLD as comm
from godwit.training import known_ahead


@dataclass
class Batch:
    heads: Tensor
    relations: Tensor
    tails: Tensor
    negatives: Any = None  # a prepared sample of entities


def train_epoch(job, batches: Iterator[Batch]) -> Iterator[tuple[float, int]]:
    """One pass over this rank's share of the triples; gives each batch's loss and size."""
    for batch in islice(batches, job.n_batches):
        loss = loss_of(job, batch)
        loss.backward()                                  # gradients become changes of the rows, and are pushed
        job.worker.advance_clock()
        yield loss.item(), len(batch.heads)


def loss_of(job, batch: Batch) -> Tensor:
    """How badly the model answers "which tail?" and "which head?" for the triples of a batch."""
    loss = torch.zeros(())
    heads, tails = job.entities(torch.stack([batch.heads, batch.tails]))
    there, back = job.relations(torch.stack([batch.relations, reverse(job, batch.relations)]))
    others = candidates(job, batch)
    for asked, relation, answer, right, turned in ((heads, there, tails, batch.tails, False),
                                                   (tails, back, heads, batch.heads, not job.reciprocal)):
        query = job.model.ask(asked, relation, turned)
        loss = loss + compare(job, query, answer, right, others) + regularise(job, asked, relation, answer)
    return loss / 2


def reverse(job, relations: Tensor) -> Tensor:
    """The rows of relations for the question "which head?"; the same, unless they have rows of their own."""
    return relations + len(job.graph.relations) if job.reciprocal else relations


def announced(job, first_epoch: int) -> Iterator[Batch]:
    """The batches of this rank, each known and announced `ahead` batches before it comes, also into the next epoch."""
    ahead, clocks = job.options.ahead, count(job.worker.current_clock)

    def announce(batch: Batch) -> None:
        when = [next(clocks)] if ahead > 0 else []
        if when:
            job.entities.intent(torch.cat([batch.heads, batch.tails]), *when)
            job.relations.intent(torch.cat([batch.relations, reverse(job, batch.relations)]), *when)
        if job.samples:
            batch.negatives = job.worker.prepare_sample(job.options.negatives, *when)

    triples = chain.from_iterable(shares(job, epoch) for epoch in range(first_epoch, job.options.epochs + 1))
    return known_ahead((Batch(*part.unbind(1)) for part in triples), ahead, announce)


def shares(job, epoch: int) -> tuple[Tensor, ...]:
    """All ranks shuffle all triples alike, and take turns with the batches."""
    chance = torch.Generator().manual_seed(job.options.seed * 1_000_003 + epoch)
    order = torch.randperm(len(job.graph.train), generator=chance)
    return job.graph.train[order].split(job.options.batch)[comm.rank::comm.size]


# ---- losses ------------------------------------------------------------------------------------------------------


def candidates(job, batch: Batch) -> Optional[tuple[Tensor, Tensor]]:
    """Entities that answers are compared with: all, a sample, or those of the batch."""
    if job.options.one_vs_all:
        return job.everybody, job.entities(job.everybody)
    if job.options.negatives > 0:
        found = job.entities.sample(batch.negatives, job.options.negatives)
        job.worker.finish_sample(batch.negatives)
        return found
    return None


def compare(job, query: Tensor, answer: Tensor, right: Tensor, others: Optional[tuple[Tensor, Tensor]]) -> Tensor:
    if job.options.one_vs_all:
        return F.cross_entropy(job.model.all(query, others[1]), right)
    ids, rows = (right, answer) if others is None else others
    positive, negative = job.model.one(query, answer), job.model.all(query, rows)
    negative = negative.masked_fill(ids == right[:, None], -torch.inf)  # the right one by chance
    if job.options.adversarial > 0:
        weight = F.softmax(negative.detach() * job.options.adversarial, 1)
        wrong = torch.where(weight > 0, weight * F.logsigmoid(-negative), 0).sum(1)
        return -(F.logsigmoid(positive) + wrong).mean() / 2
    return F.cross_entropy(torch.cat([positive[:, None], negative], 1), torch.zeros_like(right))


def regularise(job, *rows: Tensor) -> Tensor:
    loss = torch.zeros(())
    for power, strength in ((3, job.options.n3), (2, job.options.l2)):
        if strength > 0:
            loss = loss + strength / power * sum(job.model.size(row).pow(power).sum() for row in rows) / len(rows[0])
    return loss
