"""From the events of a trace to series over time, on one grid for all ranks.

Ranks write their figures at moments of their own.  Counts are made continuous
by straight lines between them, so that what happened in a cell of the grid is
a difference, and sums over ranks are right.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Optional

from .trace import Trace

MOST_CELLS = 240
LEAST_CELLS = 12
CAUSES = ("access", "replicas", "moves", "meetings")


@dataclass
class Grid:
    """Cells of equal length, in seconds since the beginning of the trace."""

    start: float
    end: float
    n: int

    @property
    def cell(self) -> float:
        return (self.end - self.start) / self.n

    @property
    def edges(self) -> list[float]:
        return [self.start + i * self.cell for i in range(self.n + 1)]

    @property
    def middles(self) -> list[float]:
        return [self.start + (i + 0.5) * self.cell for i in range(self.n)]


def _at(times: list[float], values: list[float], time: float) -> float:
    """The value at a time, on straight lines; before and after all, that of the nearest."""
    i = bisect_right(times, time)
    if i == 0:
        return values[0]
    if i == len(times):
        return values[-1]
    left, right = times[i - 1], times[i]
    part = (time - left) / (right - left) if right > left else 1.0
    return values[i - 1] + part * (values[i] - values[i - 1])


def growth(times: list[float], values: list[float], grid: Grid) -> list[float]:
    """By how much a count grew in each cell.  A count that falls has begun at 0 again."""
    rising, lost = [], 0.0
    for i, value in enumerate(values):
        if i and value < values[i - 1]:
            lost += values[i - 1]
        rising.append(value + lost)
    if not rising:
        return [0.0] * grid.n
    at = [_at(times, rising, edge) for edge in grid.edges]
    return [right - left for left, right in zip(at, at[1:])]


def state(times: list[float], values: list[Any], grid: Grid) -> list[Any]:
    """The last that was seen up to the middle of each cell; None before the first."""
    at = (bisect_right(times, middle) for middle in grid.middles)
    return [values[i - 1] if i else None for i in at]


@dataclass
class Rank:
    rank: int
    node: int
    times: list[float] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)

    def growth(self, name: str, grid: Grid) -> list[float]:
        return growth(self.times, [f[name] for f in self.figures], grid)

    def state(self, name: str, grid: Grid) -> list[Any]:
        return state(self.times, [f[name] for f in self.figures], grid)


@dataclass
class Places:
    """Where keys were: of a node, by range of keys."""

    times: list[float] = field(default_factory=list)
    owned: list[list[int]] = field(default_factory=list)
    replicas: list[list[int]] = field(default_factory=list)


@dataclass
class Parameters:
    """All that a trace says of one gw_params."""

    opening: int
    num_keys: int = 0
    ranks: dict[int, Rank] = field(default_factory=dict)
    places: dict[int, Places] = field(default_factory=dict)

    @property
    def nodes(self) -> list[int]:
        return sorted({rank.node for rank in self.ranks.values()} | set(self.places))

    def grid(self) -> Grid:
        times = [time for rank in self.ranks.values() for time in (rank.times[0], rank.times[-1])]
        samples = max(len(rank.times) for rank in self.ranks.values())
        start, end = min(times), max(times)
        return Grid(start, max(end, start + 1e-6), max(LEAST_CELLS, min(MOST_CELLS, samples - 1)))

    def by_node(self, name: str, grid: Grid) -> dict[int, list[float]]:
        """What a count grew by, added up over the ranks of each node."""
        sums = {node: [0.0] * grid.n for node in self.nodes}
        for rank in self.ranks.values():
            for i, value in enumerate(rank.growth(name, grid)):
                sums[rank.node][i] += value
        return sums

    def total(self, name: str, grid: Grid) -> list[float]:
        columns = self.by_node(name, grid).values()
        return [sum(cell) for cell in zip(*columns)]

    def local_share(self, grid: Grid) -> dict[int, list[Optional[float]]]:
        accesses, remote = self.by_node("accesses", grid), self.by_node("remote", grid)
        return {node: [1 - r / a if a > 0.5 else None for a, r in zip(accesses[node], remote[node])]
                for node in self.nodes}

    def of_node(self, name: str, grid: Grid, combine: Any = sum) -> dict[int, list[Optional[float]]]:
        """A state, such as how many replicas there are, over the ranks of each node."""
        result = {}
        for node in self.nodes:
            lines = [rank.state(name, grid) for rank in self.ranks.values() if rank.node == node]
            cells = ([value for value in cell if value is not None] for cell in zip(*lines))
            result[node] = [combine(cell) if cell else None for cell in cells]
        return result

    def owned(self, grid: Grid) -> dict[int, list[float]]:
        """Keys of each node over time."""
        return {node: [float(sum(cell)) if cell else 0.0 for cell in state(p.times, p.owned, grid)]
                for node, p in sorted(self.places.items())}

    def map(self, grid: Grid) -> list[list[list[int]]]:
        """[cell][range][node]: how many keys of the range the node has."""
        lines = {node: state(p.times, p.owned, grid) for node, p in self.places.items()}
        n_ranges = max((len(p.owned[0]) for p in self.places.values()), default=0)
        nothing = [0] * n_ranges
        return [[[(lines[node][i] or nothing)[b] if node in lines else 0 for node in self.nodes]
                 for b in range(n_ranges)] for i in range(grid.n)]

    def clocks(self, grid: Grid) -> dict[str, list[Optional[float]]]:
        """Of every worker that has ever advanced its own."""
        lines: dict[str, list[Optional[float]]] = {}
        for number in sorted(self.ranks):
            rank = self.ranks[number]
            for worker in range(max(len(f["clocks"]) for f in rank.figures)):
                values = [f["clocks"][worker] if worker < len(f["clocks"]) else 0 for f in rank.figures]
                if max(values) > 0:
                    lines[f"rank {number}, worker {worker}"] = state(rank.times, values, grid)
        return lines

    def last(self, name: str) -> int:
        """A count at the end, over all ranks, with what was counted before statistics began anew."""
        total = 0.0
        for rank in self.ranks.values():
            values = [f[name] for f in rank.figures]
            total += values[-1] + sum(a for a, b in zip(values, values[1:]) if b < a)
        return int(total)


def parameters(trace: Trace) -> list[Parameters]:
    """All parameters of a trace, in the order of their opening."""
    start = begin_us(trace)
    found: dict[int, Parameters] = defaultdict(lambda: Parameters(0))
    for event in trace.of("i", "figures"):
        args = event["args"]
        kv = found[args["opening"]]
        kv.opening, kv.num_keys = args["opening"], args["num_keys"]
        rank = kv.ranks.setdefault(event["pid"], Rank(event["pid"] - 1, args["node"]))
        rank.times.append((event["ts"] - start) / 1e6)
        rank.figures.append(args)
    for event in trace.of("i", "places"):
        args = event["args"]
        if args["opening"] not in found:
            continue
        places = found[args["opening"]].places.setdefault(args["node"], Places())
        places.times.append((event["ts"] - start) / 1e6)
        places.owned.append(args["owned"])
        places.replicas.append(args["replicas"])
    for kv in found.values():
        kv.ranks = {rank.rank: rank for rank in kv.ranks.values()}
    return [found[opening] for opening in sorted(found)]


def begin_us(trace: Trace) -> float:
    return min((event["ts"] for event in trace.events), default=0.0)


def length_s(trace: Trace) -> float:
    ends = (event["ts"] + event.get("dur", 0.0) for event in trace.events)
    return (max(ends, default=0.0) - begin_us(trace)) / 1e6


# --- waits ----------------------------------------------------------------------------------------


@dataclass
class Cause:
    """All waits for one thing."""

    text: str
    count: int = 0
    seconds: float = 0.0
    buckets: list[int] = field(default_factory=list)  # [0]: below 1 us; [b]: from 2**(b-1) us on
    longest: float = 0.0


def causes(trace: Trace, of: str = "") -> list[Cause]:
    """Those with most time first; `of` is the beginning of the names of those who waited."""
    found: dict[str, Cause] = {}
    for event in trace.of("i", "waits"):
        args = event["args"]
        if not args["of"].startswith(of):
            continue
        cause = found.setdefault(args["for"], Cause(args["for"]))
        cause.count += args["count"]
        cause.seconds += args["ns"] / 1e9
        cause.buckets += [0] * (len(args["log2_us"]) - len(cause.buckets))
        for i, n in enumerate(args["log2_us"]):
            cause.buckets[i] += n
    for event in trace.spans("wait"):
        if event["name"] in found and trace.thread_names.get(event["tid"], "").startswith(of):
            cause = found[event["name"]]
            cause.longest = max(cause.longest, event["dur"] / 1e6)
    return sorted(found.values(), key=lambda cause: -cause.seconds)
