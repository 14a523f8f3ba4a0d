"""`godwit top`: the nodes of running jobs, live.

Every look asks the ranks for their figures; what happens a second is the
difference of two looks.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Optional

from .. import _native
from . import numbers

FIRST_LOOK_SECONDS = 0.5  # between the first two looks
RATES = ("accesses", "remote", "moves", "copied", "dropped", "rounds", "bytes")
FATES = ("", "has left", "died")
BAR_CELLS = 8
EIGHTHS = " ▏▎▍▌▋▊▉"

BOLD, DIM, RED, YELLOW, GREEN = "1", "2", "31", "33", "32"


# --- what is seen ---------------------------------------------------------------------------------


@dataclass
class Node:
    """A row: the ranks of a node, added up."""

    node: int
    ranks: list[int] = field(default_factory=list)
    workers: int = 0
    keys: int = 0
    replicas: int = 0
    ever: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RATES, 0))
    a_second: dict[str, float] = field(default_factory=lambda: dict.fromkeys(RATES, 0.0))
    clocks: Optional[tuple[int, int]] = None
    staleness_ns: int = 0

    def add(self, other: Node) -> None:
        self.ranks += other.ranks
        self.workers += other.workers
        self.keys += other.keys
        self.replicas += other.replicas
        for name in RATES:
            self.ever[name] += other.ever[name]
            self.a_second[name] += other.a_second[name]
        if other.clocks is not None:
            low, high = self.clocks or other.clocks
            self.clocks = min(low, other.clocks[0]), max(high, other.clocks[1])
        self.staleness_ns = max(self.staleness_ns, other.staleness_ns)

    @property
    def local_now(self) -> Optional[float]:
        return _local(self.a_second)

    @property
    def local_ever(self) -> Optional[float]:
        return _local(self.ever)


def _local(counts: dict[str, Any]) -> Optional[float]:
    return 1 - counts["remote"] / counts["accesses"] if counts["accesses"] > 0 else None


@dataclass
class Parameters:
    opening: int
    num_keys: int
    shared_bytes: int  # of a node
    nodes: dict[int, Node] = field(default_factory=dict)


@dataclass
class Job:
    name: str
    size: int
    parameters: dict[int, Parameters] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def _a_second(now: dict[str, int], before: Optional[dict[str, int]]) -> dict[str, float]:
    """Rates between two looks.  Statistics may begin at 0 in between."""
    if before is None or now["at_ns"] <= before["at_ns"]:
        return dict.fromkeys(RATES, 0.0)
    seconds = (now["at_ns"] - before["at_ns"]) / 1e9
    return {name: (now[name] - before[name] if now[name] >= before[name] else now[name]) / seconds for name in RATES}


def _row(rank: dict[str, Any], before: Optional[dict[str, int]]) -> Node:
    figures = rank["figures"]
    return Node(
        figures["node"], [rank["rank"]], figures["workers"], figures["keys"], figures["replicas"],
        {name: figures[name] for name in RATES}, _a_second(figures, before),
        (figures["clock_least"], figures["clock_most"]) if figures["workers"] else None, figures["staleness_ns"])


class Looker:
    """Looks again and again, and remembers the last look."""

    def __init__(self, wanted: str = "", look: Callable[[], list[dict[str, Any]]] = _native.look) -> None:
        self.wanted = wanted
        self.look = look
        self.before: dict[tuple[int, int, int], dict[str, int]] = {}

    def jobs(self) -> list[Job]:
        jobs: dict[int, Job] = {}
        seen = {}
        notes: dict[tuple[int, int], str] = {}
        for rank in self.look():
            if self.wanted not in rank["job"]:
                continue
            job = jobs.setdefault(rank["id"], Job(rank["job"], rank["size"]))
            figures = rank["figures"]
            if rank["fate"]:
                notes[rank["id"], rank["rank"]] = f"rank {rank['rank']} (process {rank['pid']}) {FATES[rank['fate']]}"
                continue
            if rank["left_out"]:
                notes[rank["id"], -1] = f"{rank['left_out']} more parameters are open, which are not shown"
            if not figures:
                continue
            if not rank["answers"]:
                age = (time.monotonic_ns() - figures["at_ns"]) / 1e9
                notes[rank["id"], rank["rank"]] = (f"rank {rank['rank']} (process {rank['pid']}) does not answer; "
                                                   f"its figures are {numbers.span(max(age, 0))} old")
            key = rank["id"], rank["rank"], figures["opening"]
            kv = job.parameters.setdefault(
                figures["opening"], Parameters(figures["opening"], figures["num_keys"], figures["shared_bytes"]))
            kv.nodes.setdefault(figures["node"], Node(figures["node"])).add(_row(rank, self.before.get(key)))
            seen[key] = figures
        self.before = seen
        for (job_id, _), note in sorted(notes.items()):
            jobs[job_id].notes.append(note)
        return sorted(jobs.values(), key=lambda job: job.name)


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """`rank`: those with the highest are left out first where the terminal is narrow."""

    title: str
    rank: int
    text: Callable[[Node, Parameters], str]
    colour: Callable[[Node], str] = lambda node: ""
    width: int = 0  # at least, so that a live table stands still


def ranks_text(ranks: list[int]) -> str:
    """0-3,7"""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and parts[-1][1] == rank - 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in parts)


def _bar(part: float) -> str:
    eighths = round(max(0.0, min(1.0, part)) * BAR_CELLS * 8)
    return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).ljust(BAR_CELLS)[:BAR_CELLS]


def _share(part: Optional[float]) -> str:
    return "-" if part is None else numbers.share(part)


def _clocks(node: Node) -> str:
    if node.clocks is None:
        return "-"
    low, high = node.clocks
    return f"{low:,}" if low == high else f"{low:,}..{high:,}"


def _local_colour(node: Node) -> str:
    part = node.local_ever if node.local_now is None else node.local_now
    return "" if part is None else GREEN if part >= 0.95 else YELLOW if part >= 0.8 else RED


COLUMNS = [
    Column("node", 0, lambda n, kv: "all" if n.node < 0 else str(n.node), width=4),
    Column("ranks", 5, lambda n, kv: "" if n.node < 0 else ranks_text(n.ranks), width=5),
    Column("workers", 10, lambda n, kv: str(n.workers)),
    Column("keys here", 1, lambda n, kv: f"{n.keys:,}", width=9),
    Column("of all", 7, lambda n, kv: _share(n.keys / kv.num_keys), width=7),
    Column("", 9, lambda n, kv: _bar(n.keys / kv.num_keys), width=BAR_CELLS),
    Column("replicas", 2, lambda n, kv: numbers.count(n.replicas), width=8),
    Column("keys/s", 4, lambda n, kv: numbers.count(n.a_second["accesses"]), width=7),
    Column("local", 1, lambda n, kv: _share(n.local_now), _local_colour, width=7),
    Column("local ever", 8, lambda n, kv: _share(n.local_ever), width=7),
    Column("moves/s", 2, lambda n, kv: numbers.count(n.a_second["moves"]), width=7),
    Column("copies/s", 6, lambda n, kv: numbers.count(n.a_second["copied"]), width=8),
    Column("sent/s", 2, lambda n, kv: numbers.size(n.a_second["bytes"]), width=8),
    Column("rounds/s", 6, lambda n, kv: numbers.count(n.a_second["rounds"]), width=8),
    Column("clock", 3, lambda n, kv: _clocks(n), width=13),
    Column("stale", 3, lambda n, kv: numbers.span(n.staleness_ns / 1e9) if n.staleness_ns else "-", width=7),
]


class Paper:
    """Lines, with colours or without."""

    def __init__(self, width: int = 0, colours: bool = False) -> None:
        self.width = width  # 0: as wide as it needs
        self.colours = colours
        self.lines: list[str] = []

    def ink(self, text: str, colour: str) -> str:
        return f"\033[{colour}m{text}\033[0m" if self.colours and colour else text

    def line(self, text: str = "", colour: str = "") -> None:
        if self.width:
            text = text if len(text) <= self.width else text[:max(self.width - 1, 0)] + "…"
        self.lines.append(self.ink(text, colour))

    def table(self, kv: Parameters) -> None:
        rows = [kv.nodes[number] for number in sorted(kv.nodes)]
        total = Node(-1)
        for row in rows:
            total.add(row)
        if len(rows) > 1:
            rows.append(total)
        columns = COLUMNS
        if len(kv.nodes) == 1:  # nothing moves
            columns = [c for c in columns if c.title not in ("replicas", "moves/s", "copies/s", "sent/s", "rounds/s", "stale")]
        cells = {c: [c.text(row, kv) for row in rows] for c in columns}
        widths = {c: max([c.width, len(c.title), *map(len, cells[c])]) for c in columns}
        while self.width and len(widths) > 1 and 2 + sum(w + 2 for w in widths.values()) - 2 > self.width:
            del widths[max(widths, key=lambda c: c.rank)]
        self.line("  " + "  ".join(c.title.rjust(w) for c, w in widths.items()), BOLD)
        for i, row in enumerate(rows):
            words = []
            for column, width in widths.items():
                text = cells[column][i].rjust(width)
                words.append(self.ink(text, column.colour(row)))
            text = "  " + "  ".join(words)
            self.lines.append(text.rstrip())


def draw(jobs: list[Job], paper: Paper) -> Paper:
    for i, job in enumerate(jobs):
        if i:
            paper.line()
        paper.line(f"job {job.name}: {job.size} {'rank' if job.size == 1 else 'ranks'} here", BOLD)
        for note in job.notes:
            paper.line(f"  {note}", YELLOW)
        for number, opening in enumerate(sorted(job.parameters), 1):
            kv = job.parameters[opening]
            nodes = "1 node" if len(kv.nodes) == 1 else f"{len(kv.nodes)} nodes"
            paper.line(f"  parameters {number}: {kv.num_keys:,} keys on {nodes}, {numbers.size(kv.shared_bytes)} of shared "
                       "memory a node")
            paper.table(kv)
        if not job.parameters:
            paper.line("  no parameters are open")
    if not jobs:
        paper.line("no job of yours runs on this machine")
    return paper


# --- the two ways to show it ----------------------------------------------------------------------


def once(wanted: str = "", seconds: float = FIRST_LOOK_SECONDS) -> int:
    looker = Looker(wanted)
    if looker.jobs():
        time.sleep(seconds)
    paper = draw(looker.jobs(), Paper(colours=sys.stdout.isatty()))
    print("\n".join(paper.lines))
    return 0


@contextmanager
def _screen() -> Iterator[None]:
    """The terminal's other page, without a cursor, and keys as they are pressed; all as before at the end."""
    import termios
    import tty

    keyboard = sys.stdin.fileno() if sys.stdin.isatty() else None
    before = termios.tcgetattr(keyboard) if keyboard is not None else None
    sys.stdout.write("\033[?1049h\033[?25l")
    try:
        if keyboard is not None:
            tty.setcbreak(keyboard)
        yield
    finally:
        if keyboard is not None:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        sys.stdout.write("\033[?25h\033[?1049l")
        sys.stdout.flush()


def _show(jobs: list[Job], interval: float) -> None:
    width, height = os.get_terminal_size(sys.stdout.fileno())  # not what COLUMNS says, which does not change
    paper = Paper(width, colours=True)
    paper.line(f"godwit top   {time.strftime('%H:%M:%S')}   every {interval:g} s   q ends", DIM)
    paper.line()
    draw(jobs, paper)
    lines = paper.lines
    if len(lines) > height:
        lines = lines[:height - 1] + [paper.ink(f"... {len(lines) - height + 1} more lines", DIM)]
    # Line by line over what was there: nothing flickers.
    sys.stdout.write("\033[H" + "".join(f"{line}\033[K\r\n" for line in lines[:-1]) + lines[-1] + "\033[K\033[J")
    sys.stdout.flush()


def _pause(seconds: float, wake: int) -> bool:
    """Wait, or until the window changes.  Returns whether to go on."""
    end = time.monotonic() + seconds
    sources = [wake] + ([sys.stdin] if sys.stdin.isatty() else [])
    while (left := end - time.monotonic()) > 0:
        ready = select.select(sources, [], [], left)[0]
        if wake in ready:
            os.read(wake, 4096)
            return True
        if sys.stdin in ready and os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b"\x03", b""):
            return False
    return True


def live(wanted: str = "", interval: float = 1.0) -> int:
    looker = Looker(wanted)
    wake, ring = os.pipe()
    os.set_blocking(ring, False)
    signal.signal(signal.SIGWINCH, lambda *_: os.write(ring, b"."))
    try:
        with _screen():
            pause = min(FIRST_LOOK_SECONDS, interval)
            while True:
                _show(looker.jobs(), interval)
                if not _pause(pause, wake):
                    return 0
                pause = interval
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)
        os.close(wake)
        os.close(ring)


def main(wanted: str, just_once: bool, interval: float) -> int:
    return once(wanted) if just_once or not sys.stdout.isatty() else live(wanted, interval)
