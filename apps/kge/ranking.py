"""ranking.py - how high the right answers rank, all ranks together.

For each triple both questions are asked, (head, relation, ?) and (?, relation, tail).  Other answers that are known to be
right do not count against the one that is asked for (`filtered`); of equal scores half count as better.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from godwit.comm import COMM_WORLD as comm

AT_ONCE = 512  # questions


@dataclass
class Quality:
    mrr: float
    hits1: float
    hits3: float
    hits10: float

    def texts(self) -> list[str]:
        return [f"{value:.3f}" for value in (self.mrr, self.hits1, self.hits3, self.hits10)]


class Known:
    """The right answers to every question, over all triples."""

    def __init__(self, triples: Tensor, n_relations: int) -> None:
        self.n_relations = n_relations
        both = torch.cat([triples, triples.flip(1) + torch.tensor([0, n_relations, 0])])
        question = both[:, 0] * (2 * n_relations) + both[:, 1]
        order = torch.argsort(question)
        self.question, counts = torch.unique_consecutive(question[order], return_counts=True)
        self.answers = both[order, 2]
        self.start = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])

    def hide(self, scores: Tensor, entities: Tensor, relations: Tensor, but: Tensor) -> None:
        """Set the scores [n, entities] of right answers to -inf, except that of `but`."""
        place = torch.searchsorted(self.question, entities * (2 * self.n_relations) + relations)
        n = self.start[place + 1] - self.start[place]
        row = torch.repeat_interleave(torch.arange(len(place)), n)
        offset = torch.arange(len(row)) - torch.repeat_interleave(n.cumsum(0) - n, n)
        answers = self.answers[self.start[place][row] + offset]
        kept = scores.gather(1, but[:, None])
        scores[row, answers] = -torch.inf
        scores.scatter_(1, but[:, None], kept)


@torch.no_grad()
def evaluate(model, entities, relations, reciprocal: bool, triples: Tensor, known: Known) -> Quality:
    """Collective: each rank takes its share of the triples."""
    all_entities = entities.read(torch.arange(entities.num_embeddings))
    all_relations = relations.read(torch.arange(relations.num_embeddings))
    n_relations = known.n_relations
    sums = torch.zeros(5, dtype=torch.float64)
    for triple in triples[comm.rank::comm.size].split(AT_ONCE):
        head, relation, tail = triple.unbind(1)
        for back in (False, True):
            asked, answer = (tail, head) if back else (head, tail)
            turned = relation + n_relations if back else relation
            row = all_relations[turned if reciprocal else relation]
            query = model.ask(all_entities[asked], row, back and not reciprocal)
            scores = model.all(query, all_entities)
            known.hide(scores, asked, turned, answer)
            own = scores.gather(1, answer[:, None])
            rank = 1 + (scores > own).sum(1) + ((scores == own).sum(1) - 1) / 2
            sums += torch.stack([(1 / rank).sum(), (rank <= 1).sum(), (rank <= 3).sum(), (rank <= 10).sum(),
                                 torch.tensor(len(rank))]).double()
    sums = comm.Allreduce(sums)
    return Quality(*(sums[:4] / sums[4].clamp(min=1)).tolist())
