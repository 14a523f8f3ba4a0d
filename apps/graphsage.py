"""Node classification with GraphSAGE; features and adjacency lie in whole memory.

    godwit run -n 4 apps/graphsage.py --dataset DIR        nodes.tsv and edges.tsv, such as Cora
    godwit run -n 4 apps/graphsage.py --generate 1000000   a random graph with communities

Every rank sees all features and all edges, but holds a part of them only.  Each takes a share of the training nodes,
samples their neighbours and the neighbours' neighbours, gathers the features of all these nodes wherever they lie,
and the gradients of the (small) model are averaged over the ranks.  On several nodes the memory is distributed, and
the same gathers go by messages.

nodes.tsv has a line for each node: number, class, train, val or test (or anything else), and the features that are 1,
by number, with spaces between them.  edges.tsv has the two ends of each edge.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import godwit
from godwit import memory
from godwit.comm import COMM_WORLD as comm
from godwit.comm import MPI_SUM


class Graph:
    """Features, edges by node (`edges[starts[v]:starts[v + 1]]`), classes, and which nodes are for what."""

    def __init__(self, n_nodes: int, n_edges: int, n_features: int):
        kind = "continuous" if godwit.world().nodes == 1 else "distributed"
        self.features = memory.empty((n_nodes, n_features), kind=kind)
        self.starts = memory.empty(n_nodes + 1, torch.int64, kind=kind)
        self.edges = memory.empty(n_edges, torch.int32, kind=kind)
        self.labels = memory.empty(n_nodes, torch.int64, kind=kind)
        self.train = self.val = self.test = torch.empty(0, dtype=torch.int64)
        self.n_classes = 0

    def ready(self) -> "Graph":
        """All ranks have filled their parts."""
        comm.Barrier()
        return self

    def neighbours(self, nodes: torch.Tensor, most: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Edges from `nodes`, at most so many each: positions in `nodes`, and the nodes at the other ends.  Of a node with
        more, some are drawn; each node is its own neighbour too."""
        first = self.starts.gather(nodes)
        degree = self.starts.gather(nodes + 1) - first
        taken = degree.clamp(max=most)
        at = torch.repeat_interleave(torch.arange(len(nodes)), taken)
        offset = torch.arange(len(at)) - (taken.cumsum(0) - taken)[at]
        drawn = (torch.rand(len(at)) * degree[at]).long()
        offset = torch.where(degree[at] > most, drawn, offset)
        others = self.edges.gather(first[at] + offset).long()
        return torch.cat([torch.arange(len(nodes)), at]), torch.cat([nodes, others])


def own(part: memory.Memory) -> slice:
    return slice(part.local_start, part.local_start + len(part.local))


def read_graph(directory: Path) -> Graph:
    """The files are small: every rank reads them, and keeps its part."""
    nodes = [line.rstrip("\n").split("\t") for line in open(directory / "nodes.tsv")]
    words = [[int(word) for word in line[3].split()] for line in nodes]
    pairs = torch.tensor([[int(word) for word in line.split()] for line in open(directory / "edges.tsv")])
    ends = torch.cat([pairs, pairs.flip(1)]).unique(dim=0)
    ends = ends[ends[:, 0] != ends[:, 1]]
    n_features = 1 + max((max(row) for row in words if row), default=0)
    graph = Graph(len(nodes), len(ends), n_features)
    features = torch.zeros(len(graph.features.local), n_features)
    for i, row in enumerate(words[own(graph.features)]):
        if row:
            features[i, row] = 1 / len(row)
    graph.features.local[:] = features
    starts = torch.zeros(len(nodes) + 1, dtype=torch.int64)
    starts[1:] = torch.bincount(ends[:, 0], minlength=len(nodes)).cumsum(0)
    labels = torch.tensor([int(line[1]) for line in nodes])
    graph.starts.local[:] = starts[own(graph.starts)]
    graph.edges.local[:] = ends[own(graph.edges), 1]
    graph.labels.local[:] = labels[own(graph.labels)]
    for name in ("train", "val", "test"):  # "valid" is "val" too
        setattr(graph, name, torch.tensor([i for i, line in enumerate(nodes) if line[2].removesuffix("id") == name], dtype=torch.int64))
    graph.n_classes = int(labels.max()) + 1
    return graph.ready()


def generate_graph(n_nodes: int, n_features: int = 64, degree: int = 10, n_classes: int = 16) -> Graph:
    """Communities whose members are mostly each other's neighbours, with features that hardly tell them apart.  Every rank
    makes its own part, so no rank ever holds the whole."""
    graph = Graph(n_nodes, n_nodes * degree, n_features)
    draw = torch.Generator().manual_seed(1000 + comm.rank)
    centres = torch.randn(n_classes, n_features, generator=torch.Generator().manual_seed(1)) * 0.15
    mine = torch.arange(own(graph.features).start, own(graph.features).stop)
    graph.features.local[:] = torch.randn(len(mine), n_features, generator=draw) + centres[mine % n_classes]
    graph.labels.local[:] = torch.arange(own(graph.labels).start, own(graph.labels).stop) % n_classes
    graph.starts.local[:] = torch.arange(own(graph.starts).start, own(graph.starts).stop) * degree
    sources = torch.arange(own(graph.edges).start, own(graph.edges).stop) // degree
    ends = torch.randint(n_nodes, sources.shape, generator=draw)
    inside = torch.rand(sources.shape, generator=draw) < 0.8
    community = (ends // n_classes * n_classes + sources % n_classes).clamp(max=n_nodes - 1)
    graph.edges.local[:] = torch.where(inside, community, ends)
    order = torch.randperm(n_nodes, generator=torch.Generator().manual_seed(2))
    n_test = min(5000, n_nodes // 10)
    graph.test, graph.val, graph.train = order[:n_test], order[n_test:2 * n_test], order[2 * n_test:]
    graph.n_classes = n_classes
    return graph.ready()


class GraphSage(torch.nn.Module):
    """Two layers; each takes the mean over a node and its neighbours."""

    def __init__(self, n_features: int, hidden: int, n_classes: int, dropout: float):
        super().__init__()
        self.first = torch.nn.Linear(n_features, hidden)
        self.second = torch.nn.Linear(hidden, n_classes)
        self.dropout = dropout

    @staticmethod
    def mean(values: torch.Tensor, at: torch.Tensor, of: torch.Tensor, n: int) -> torch.Tensor:
        """For each of n nodes the mean of values[of] where `at` names it."""
        sums = torch.zeros(n, values.shape[1]).index_add(0, at, values[of])
        return sums / torch.bincount(at, minlength=n).clamp(min=1).unsqueeze(1)

    def forward(self, graph: Graph, nodes: torch.Tensor, fanout: int) -> torch.Tensor:
        at_two, ends = graph.neighbours(nodes, fanout)
        middle, of_two = ends.unique(return_inverse=True)
        at_one, ends = graph.neighbours(middle, fanout)
        outer, of_one = ends.unique(return_inverse=True)
        x = F.dropout(graph.features.gather(outer), self.dropout, self.training)
        # A mean of products is the product of the mean, and there are fewer columns afterwards.
        h = F.relu(self.mean(self.first(x), at_one, of_one, len(middle)))
        h = F.dropout(h, self.dropout, self.training)
        return self.mean(self.second(h), at_two, of_two, len(nodes))


def share_of(nodes: torch.Tensor) -> torch.Tensor:
    return nodes[comm.rank::comm.size]


def average_gradients(model: torch.nn.Module, n_mine: int) -> None:
    """Gradients of the ranks' sums become the gradient of the mean over all nodes of the step."""
    flat = torch.cat([torch.tensor([float(n_mine)]), *(p.grad.reshape(-1) for p in model.parameters())])
    flat = comm.Allreduce(flat, MPI_SUM)
    at = 1
    for p in model.parameters():
        p.grad = (flat[at:at + p.numel()] / flat[0]).reshape(p.shape)
        at += p.numel()


@torch.no_grad()
def accuracy(model: GraphSage, graph: Graph, nodes: torch.Tensor, batch: int, fanout: int) -> float:
    model.eval()
    right, mine = 0.0, share_of(nodes)
    for at in range(0, -(-len(nodes) // comm.size), batch):  # equally often on all ranks
        part = mine[at:at + batch]
        right += (model(graph, part, fanout).argmax(1) == graph.labels.gather(part)).sum().item()
    return comm.Allreduce(torch.tensor([right]), MPI_SUM).item() / len(nodes)


def train(graph: Graph, a: argparse.Namespace) -> float:
    torch.manual_seed(a.seed)
    model = GraphSage(graph.features.shape[1], a.hidden, graph.n_classes, a.dropout)
    optimizer = torch.optim.Adam([{"params": model.first.parameters(), "weight_decay": a.weight_decay},
                                  {"params": model.second.parameters()}], lr=a.lr)
    torch.manual_seed(a.seed + 1 + comm.rank)  # from here on each rank draws its own
    best, best_test, seen, started, spent = 0.0, 0.0, 0, time.monotonic(), 0.0
    order = graph.train
    for step in range(1, a.steps + 1):
        if len(graph.train) > a.batch * comm.size:
            order = graph.train[torch.randint(len(graph.train), (a.batch * comm.size,),
                                              generator=torch.Generator().manual_seed(step))]
        mine, begun = share_of(order), time.monotonic()
        model.train()
        model.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(graph, mine, a.fanout), graph.labels.gather(mine), reduction="sum")
        loss.backward()
        average_gradients(model, len(mine))
        optimizer.step()
        spent += time.monotonic() - begun
        seen += len(order)
        if step % a.every == 0 or step == a.steps:
            val = accuracy(model, graph, graph.val, a.batch, a.eval_fanout)
            if val >= best:
                best, best_test = val, accuracy(model, graph, graph.test, a.batch, a.eval_fanout)
            if comm.rank == 0:
                print(f"step {step:4}/{a.steps}  loss {loss.item() / max(1, len(mine)):.3f}  validation {val:.3f}  "
                      f"best test {best_test:.3f}  {seen / spent:,.0f} nodes/s  {time.monotonic() - started:.0f} s", flush=True)
    return best_test


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--dataset", type=Path, help="a directory with nodes.tsv and edges.tsv")
    source.add_argument("--generate", type=int, metavar="NODES", help="a random graph of so many nodes")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=512, help="training nodes of a rank in a step")
    parser.add_argument("--fanout", type=int, default=10, help="neighbours of a node in training")
    parser.add_argument("--eval-fanout", type=int, default=200, help="... and when it is judged")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.6)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--every", type=int, default=10, help="steps between two looks at the accuracy")
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()

    godwit.init()
    torch.set_num_threads(1)
    started = time.monotonic()
    graph = read_graph(a.dataset) if a.dataset is not None else generate_graph(a.generate)
    if comm.rank == 0:
        print(f"{len(graph.labels):,} nodes, {len(graph.edges):,} edges, {graph.features.shape[1]} features, {comm.size} "
              f"rank(s); ready after {time.monotonic() - started:.1f} s", flush=True)
    test = train(graph, a)
    if comm.rank == 0:
        print(f"test accuracy {test:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
