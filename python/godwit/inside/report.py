"""`godwit report`: one page with charts from a trace."""

from __future__ import annotations

import html
import os
import sys
import time
from typing import Optional

from . import charts, numbers, page, series
from .charts import Series, node_colour
from .trace import BadTrace, Trace, read

LONGEST = 15  # waits in the table
MOST_STRIPS = 24
OTHER = "#7d8894"


def _per_second(values: list[float], grid: series.Grid) -> list[float]:
    return [value / grid.cell for value in values]


def _of_nodes(nodes: list[int], values: dict) -> list[Series]:
    return [Series(f"node {node}", node_colour(i, len(nodes)), values[node]) for i, node in enumerate(nodes) if node in values]


def _a_second(text) -> object:
    return lambda value: f"{text(value)}/s"


class Section:
    """The charts of one gw_params."""

    def __init__(self, kv: series.Parameters) -> None:
        self.kv = kv
        self.grid = kv.grid()
        self.span = self.grid.start, self.grid.end
        self.times = self.grid.middles
        self.nodes = kv.nodes

    def rates(self, name: str) -> dict[int, list[float]]:
        return {node: _per_second(values, self.grid) for node, values in self.kv.by_node(name, self.grid).items()}

    def lines(self, title: str, text: str, values: dict, show, top: Optional[float] = None) -> str:
        chart = charts.lines(self.times, self.span, _of_nodes(self.nodes, values), show, title, top=top)
        return page.card(title, text, chart)

    def tiles(self) -> str:
        kv = self.kv
        accesses, remote, seconds = kv.last("accesses"), kv.last("remote"), self.span[1] - self.span[0]
        tiles = [page.tile(numbers.count(kv.num_keys), "keys"),
                 page.tile(numbers.count(accesses), "keys read or changed"),
                 page.tile(numbers.share(1 - remote / accesses) if accesses else "-", "of these on the node")]
        if len(self.nodes) > 1:
            stale = [f["staleness_ns"] for rank in kv.ranks.values() for f in rank.figures if f["staleness_ns"]]
            tiles += [page.tile(numbers.count(kv.last("moves")), "keys moved"),
                      page.tile(numbers.count(kv.last("copied")), "replicas made"),
                      page.tile(numbers.size(kv.last("bytes")), f"sent, {numbers.size(kv.last('bytes') / seconds)}/s"),
                      page.tile(numbers.span(sorted(stale)[len(stale) // 2] / 1e9) if stale else "-",
                                "until others see a change, median")]
        return f'<div class="tiles">{"".join(tiles)}</div>'

    def places(self) -> list[str]:
        if len(self.nodes) < 2 or not self.kv.places:
            return []
        owned = charts.stacked(self.times, self.span, _of_nodes(self.nodes, self.kv.owned(self.grid)), numbers.count,
                               "keys of each node over time", width=1100, height=190, top=self.kv.num_keys)
        heat = charts.heat_map(self.span, self.times, self.kv.map(self.grid), self.nodes, self.kv.num_keys)
        return [page.card("Where the keys were", "How many keys each node owned. What is missing to the top was on its way.",
                          owned, wide=True),
                page.card("Which keys were where", "Key ranges upwards, time to the right, coloured by the nodes that owned their "
                          "keys; mixed colours are mixed ranges.", heat, wide=True)]

    def accesses(self) -> list[str]:
        kv, grid = self.kv, self.grid
        every = _per_second(kv.total("accesses", grid), grid)
        remote = _per_second(kv.total("remote", grid), grid)
        local = [max(a - r, 0.0) for a, r in zip(every, remote)]
        chart = charts.stacked(self.times, self.span, [Series("on the node", charts.NODE_COLOURS[2], local),
                                                       Series("elsewhere", charts.CAUSE_COLOURS["access"], remote)],
                               _a_second(numbers.count), "keys accessed per second")
        cards = [page.card("Keys read or changed", "A second, all nodes together.", chart)]
        if len(self.nodes) > 1:
            cards.insert(0, self.lines("Local share", "Of the keys that workers read or changed, those that were on their node.",
                                       kv.local_share(grid), numbers.share, top=1.0))
        return cards

    def traffic(self) -> list[str]:
        if len(self.nodes) < 2:
            return []
        kv, grid = self.kv, self.grid
        made = _per_second(kv.total("copied", grid), grid)
        dropped = _per_second(kv.total("dropped", grid), grid)
        causes = [Series({"access": "keys that were not here"}.get(cause, cause), charts.CAUSE_COLOURS[cause],
                         _per_second(kv.total(f"bytes_{cause}", grid), grid)) for cause in series.CAUSES]
        stale = {node: [v / 1e9 if v else None for v in values]
                 for node, values in kv.of_node("staleness_ns", grid, max).items()}
        return [
            self.lines("Moves", "Keys that came to a node to stay, a second.", self.rates("moves"), _a_second(numbers.count)),
            self.lines("Replicas here", "Copies of other nodes' keys.", kv.of_node("replicas", grid), numbers.count),
            page.card("Replicas made and dropped", "A second, all nodes together.",
                      charts.lines(self.times, self.span, [Series("made", charts.NODE_COLOURS[2], made),
                                                           Series("dropped", charts.NODE_COLOURS[3], dropped)],
                                   _a_second(numbers.count), "replicas made and dropped per second")),
            page.card("Bytes sent, by cause", "A second, all nodes together.",
                      charts.stacked(self.times, self.span, causes, _a_second(numbers.size), "bytes per second by cause")),
            self.lines("Rounds", "Of telling each other what has changed, a second.", self.rates("rounds"),
                       _a_second(numbers.count)),
            self.lines("Staleness", "About how long other nodes wait for a change.", stale, numbers.span),
        ]

    def clocks(self) -> list[str]:
        clocks = self.kv.clocks(self.grid)
        if not clocks:
            return []
        lines = [Series(name, node_colour(i, len(clocks)), values) for i, (name, values) in enumerate(clocks.items())]
        wide = len(self.nodes) > 1  # else there is room beside another chart
        chart = charts.lines(self.times, self.span, lines, numbers.count, "clocks of workers",
                             width=1100 if wide else 540, height=190 if wide else 200)
        return [page.card("Clocks", "Of each worker.", chart, wide=wide)]

    def body(self, number: int, of: int) -> str:
        title = "Parameters" if of == 1 else f"Parameters {number}"
        nodes = "one node, so that nothing moves" if len(self.nodes) == 1 else f"{len(self.nodes)} nodes"
        cards = self.places() + self.accesses() + self.traffic() + self.clocks()
        return (f"<h2>{title}</h2><p>{self.kv.num_keys:,} keys on {nodes}; open for "
                f"{numbers.span(self.span[1] - self.span[0])}.</p>{self.tiles()}"
                f'<div class="cards">{"".join(cards)}</div>')


# --- waits ----------------------------------------------------------------------------------------


def _who(trace: Trace, event: dict) -> str:
    process = trace.process_names.get(event["pid"], f"process {event['pid']}")
    return f"{process.split(' (')[0]}, {trace.thread_names.get(event['tid'], 'a thread')}"


def _colours(causes: list[series.Cause]) -> dict[str, str]:
    return {cause.text: charts.NODE_COLOURS[i] if i < len(charts.NODE_COLOURS) else OTHER for i, cause in enumerate(causes)}


def _bucket_text(bucket: int) -> str:
    return "0" if bucket == 0 else charts.tick_text(numbers.span(2 ** (bucket - 1) / 1e6))


def _histogram(causes: list[series.Cause], colours: dict[str, str]) -> str:
    n = max(len(cause.buckets) for cause in causes)
    first = min(next(i for i, count in enumerate(cause.buckets) if count) for cause in causes)
    bars = [Series(cause.text, colours[cause.text], [float(c) for c in (cause.buckets + [0] * n)[first:n]]) for cause in causes]
    return charts.bars([_bucket_text(b) for b in range(first, n)], bars, "how long waits lasted")


def _strips(trace: Trace, colours: dict[str, str]) -> str:
    start, end = series.begin_us(trace), series.length_s(trace)
    rows: dict[tuple[int, int], list[tuple[float, float, str, str]]] = {}
    least = end / 2000  # what is closer than that becomes one piece
    for event in trace.spans("wait"):
        begin = (event["ts"] - start) / 1e6
        pieces = rows.setdefault((event["pid"], event["tid"]), [])
        colour = colours.get(event["name"], OTHER)
        finish = begin + event["dur"] / 1e6
        if pieces and pieces[-1][2] == colour and begin - pieces[-1][1] < least:
            pieces[-1] = pieces[-1][0], max(finish, pieces[-1][1]), colour, event["name"]
        else:
            pieces.append((begin, finish, colour, event["name"]))
    named = [(_who(trace, {"pid": pid, "tid": tid}).replace(" of parameters ", " of "), pieces)
             for (pid, tid), pieces in sorted(rows.items())]
    chart = charts.strips((0.0, end), named[:MOST_STRIPS])
    more = f"<p>... and {len(named) - MOST_STRIPS} more threads.</p>" if len(named) > MOST_STRIPS else ""
    return charts.legend([Series(text, colour, []) for text, colour in colours.items()]) + chart + more


def waits(trace: Trace) -> str:
    causes = series.causes(trace)
    if not causes:
        return "<h2>Waits</h2><p>Nobody waited.</p>"
    colours = _colours(causes)
    spans = sorted(trace.spans("wait"), key=lambda event: -event["dur"])[:LONGEST]
    start = series.begin_us(trace)
    left_out = sum(event["args"]["spans"] for event in trace.of("i", "left out"))
    by_cause = page.table(
        ["for", "waits", "in all", "on average", "longest"],
        [[c.text, f"{c.count:,}", numbers.span(c.seconds), numbers.span(c.seconds / c.count),
          numbers.span(c.longest) if c.longest else "-"] for c in causes], 1)
    longest = page.table(
        ["who", "for", "at", "lasted"],
        [[_who(trace, e), e["name"], f"{(e['ts'] - start) / 1e6:.3f} s", numbers.span(e["dur"] / 1e6)] for e in spans], 2)
    cards = [page.card("How long waits lasted", "How many waits by their length; each bar is twice as long as the one before.",
                       _histogram(causes, colours)),
             page.card("What they were for", "All waits, also those too short to be traced one by one.", by_cause)]
    if spans:
        cards += [page.card("Who waited when", "Waits of at least 20 us, where there were not too many." + (
            f" {left_out:,} spans were left out." if left_out else ""), _strips(trace, colours), wide=True),
            page.card("The longest waits", "", longest, wide=True)]
    return f'<h2>Waits</h2><div class="cards">{"".join(cards)}</div>'


# --- the page -------------------------------------------------------------------------------------


def make(trace: Trace) -> str:
    """The whole page."""
    job = trace.job
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(job.get("unix_us", 0)) / 1e6))
    ranks, nodes = job.get("ranks", 1), job.get("nodes", 1)
    about = (f"Job {job.get('job', '')} on {job.get('host', '')}, {began}: {ranks} {'rank' if ranks == 1 else 'ranks'} on "
             f"{nodes} {'node' if nodes == 1 else 'nodes'} ({job.get('fabric', '')}), {numbers.span(series.length_s(trace))}.")
    body = [f'<h1>Inside a Godwit job</h1><p class="about">{html.escape(about)}</p>']
    if not trace.is_whole or trace.damaged:
        text = "The trace has no end: some of its processes did not leave properly, and the last moments may be missing."
        if trace.damaged:
            text += f" {trace.damaged} damaged {'line was' if trace.damaged == 1 else 'lines were'} left out."
        body.append(f'<p class="warning">{text}</p>')
    found = series.parameters(trace)
    body += [Section(kv).body(number, len(found)) for number, kv in enumerate(found, 1)]
    if not found:
        body.append("<h2>Parameters</h2><p>None were open long enough to be seen.</p>")
    body.append(waits(trace))
    body.append(f"<footer>Made by godwit {html.escape(str(job.get('version', '')))} from {len(trace.events):,} events. The trace itself "
                "opens in Perfetto, too.</footer>")
    return page.page(f"Godwit report: {job.get('job', '')}", "\n".join(body))


def main(paths: list[str], output: Optional[str]) -> int:
    target = output or os.path.splitext(paths[0])[0] + ".html"
    try:
        text = make(read(paths))
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)
    except BadTrace as error:
        print(f"godwit report: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"godwit report: cannot write '{target}': {error.strerror}", file=sys.stderr)
        return 1
    print(target)
    return 0
