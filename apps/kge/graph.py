"""graph.py - knowledge graphs: read from files, or made up with rules that can be learned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

ORDERS = {"hrt": (0, 1, 2), "rht": (1, 0, 2), "htr": (0, 2, 1)}  # where head, relation and tail are in a line


@dataclass
class Graph:
    """Triples (head, relation, tail) of numbers."""

    name: str
    entities: list[str]
    relations: list[str]
    train: Tensor  # [n, 3] int64
    valid: Tensor
    test: Tensor

    def __str__(self) -> str:
        return (f"{self.name}: {len(self.entities):,} entities, {len(self.relations):,} relations, "
                f"{len(self.train):,} / {len(self.valid):,} / {len(self.test):,} triples")


# ---- from files --------------------------------------------------------------------------------------------------


def read(directory: Path, order: str = "auto") -> Graph:
    """train.txt, valid.txt and test.txt: three columns between tabs, in this order or in the one that is found out."""
    lines = {part: _read_lines(directory / f"{part}.txt") for part in ("train", "valid", "test")}
    columns = ORDERS[_find_order(lines["train"]) if order == "auto" else order]
    ordered = {part: [tuple(line[c] for c in columns) for line in found] for part, found in lines.items()}
    entities = sorted({name for found in ordered.values() for head, _, tail in found for name in (head, tail)})
    relations = sorted({relation for found in ordered.values() for _, relation, _ in found})
    entity, relation = ({name: i for i, name in enumerate(names)} for names in (entities, relations))
    parts = {part: torch.tensor([(entity[h], relation[r], entity[t]) for h, r, t in found]).reshape(-1, 3)
             for part, found in ordered.items()}
    return Graph(directory.name, entities, relations, **parts)


def _read_lines(path: Path) -> list[list[str]]:
    try:
        lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line]
    except FileNotFoundError:
        raise SystemExit(f"{path} is missing; a dataset is a directory with train.txt, valid.txt and test.txt") from None
    for number, line in enumerate(lines, 1):
        if len(line) != 3:
            raise SystemExit(f"{path}, line {number}: {len(line)} columns between tabs, not 3")
    return lines


def _find_order(lines: list[list[str]]) -> str:
    """Heads and tails are the two columns that have most names in common."""
    names = [{line[c] for line in lines} for c in range(3)]
    common = {order: len(names[h] & names[t]) for order, (h, _, t) in ORDERS.items()}
    return max(common, key=lambda order: common[order])


# ---- made up -----------------------------------------------------------------------------------------------------

CITIES_PER_COUNTRY = 12
PEOPLE_PER_CITY = 8


def generate(n_entities: int, seed: int = 0, held_out: float = 0.1) -> Graph:
    """People who live in cities that lie in countries, marry, and come from somewhere: with rules.

      symmetry     married(a, b)                       ->  married(b, a)
      inversion    lives_in(p, c)                      ->  has_inhabitant(c, p)
                   part_of(c, l)                       ->  has_city(l, c)
      composition  lives_in(p, c) and part_of(c, l)    ->  citizen_of(p, l)

    What is held out follows from what is not: of each pair of triples that imply each other, and of each composition,
    only the consequence may be.
    """
    chance = torch.Generator().manual_seed(seed)
    n_cities = max(2, n_entities // (1 + PEOPLE_PER_CITY))
    n_countries = max(2, n_cities // CITIES_PER_COUNTRY)
    n_people = max(2, n_entities - n_cities - n_countries)
    relations = ["married", "lives_in", "has_inhabitant", "part_of", "has_city", "citizen_of"]
    number = {name: i for i, name in enumerate(relations)}
    entities = [f"person_{i}" for i in range(n_people)] + [f"city_{i}" for i in range(n_cities)] + \
        [f"country_{i}" for i in range(n_countries)]
    people = torch.arange(n_people)
    city = torch.randint(n_cities, (n_people,), generator=chance)
    country = torch.cat([torch.arange(n_countries), torch.randint(n_countries, (n_cities - n_countries,),
                                                                  generator=chance)])
    couples = torch.randperm(n_people, generator=chance)[:n_people // 2 * 2].view(-1, 2)
    lives, lies = city + n_people, country + n_people + n_cities
    cities = torch.arange(n_cities) + n_people

    def triples(relation: str, heads: Tensor, tails: Tensor) -> Tensor:
        return torch.stack([heads, torch.full_like(heads, number[relation]), tails], 1)

    premises = torch.cat([triples("married", couples[:, 0], couples[:, 1]), triples("lives_in", people, lives),
                          triples("part_of", cities, lies)])
    consequences = torch.cat([triples("married", couples[:, 1], couples[:, 0]), triples("has_inhabitant", lives, people),
                              triples("has_city", lies, cities), triples("citizen_of", people, lies[city])])
    consequences = consequences[torch.randperm(len(consequences), generator=chance)]
    n_held = int(held_out * len(consequences)) // 2
    train = torch.cat([premises, consequences[2 * n_held:]])
    train = train[torch.randperm(len(train), generator=chance)]
    return Graph("generated", entities, relations, train, consequences[:n_held], consequences[n_held:2 * n_held])
