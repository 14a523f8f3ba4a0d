"""Charts as SVG, without any library: lines, stacked areas, bars, and a map of keys.

Colours that depend on light or dark are CSS variables of the page.  A chart
carries its numbers as JSON, from which the page's script makes the text under
the pointer.
"""

from __future__ import annotations

import base64
import colorsys
import html
import json
import math
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

from . import numbers

LEFT, RIGHT, TOP, BOTTOM = 62, 12, 10, 26
NODE_COLOURS = ["#3b82c4", "#ef8e3b", "#3aa876", "#c2527d", "#8a6fc9", "#b8a02e", "#4bb3c3", "#a8683f", "#7a8a3a", "#d96459"]
CAUSE_COLOURS = {"access": "#c2527d", "replicas": "#8a6fc9", "moves": "#ef8e3b", "meetings": "#7d8894"}

Line = Sequence[Optional[float]]


def node_colour(i: int, n: int) -> str:
    if n <= len(NODE_COLOURS):
        return NODE_COLOURS[i]
    red, green, blue = colorsys.hls_to_rgb(i / n, 0.52 + 0.1 * (i % 2), 0.55)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


@dataclass
class Series:
    name: str
    colour: str
    values: Line


def nice_steps(top: float, about: int = 4) -> list[float]:
    """Round numbers from 0 to above `top`."""
    if top <= 0:
        return [0.0, 1.0]
    raw = top / about
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    return [i * step for i in range(math.ceil(top / step - 1e-9) + 1)]


def time_steps(start: float, end: float, about: int = 6) -> list[float]:
    raw = max(end - start, 1e-9) / about
    choices = [m * 10.0 ** e for e in range(-7, 2) for m in (1, 2, 5)] + [60, 120, 300, 600, 1200, 3600, 7200, 18000]
    choices += [36000 * 2 ** i for i in range(20)]
    step = next(s for s in sorted(choices) if s >= raw)
    first = math.ceil(start / step - 1e-9)
    return [i * step for i in range(first, math.floor(end / step + 1e-9) + 1)]


def time_text(seconds: float, step: float = 0) -> str:
    if seconds == 0:
        return "0"
    if step >= 60 or seconds >= 600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{rest:02} h" if minutes >= 60 else f"{minutes}:{rest:02} min"
    if step and step < 1e-3:
        return f"{seconds * 1e3:g} ms"
    return f"{round(seconds, 6):g} s"


def tick_text(text: str) -> str:
    """A round number without the zeros behind its point."""
    return re.sub(r"(\d)\.0+(?=\D|$)", r"\1", re.sub(r"(\.\d*?[1-9])0+(?=\D|$)", r"\1", text))


class Chart:
    """An SVG that grows, with a frame and axes of time and something else."""

    def __init__(self, width: int, height: int, start: float, end: float, top: float,
                 text: Callable[[float], str], label: str) -> None:
        self.width, self.height = width, height
        self.start, self.end = start, max(end, start + 1e-9)
        self.text = text
        self.steps = nice_steps(top)
        self.top = self.steps[-1]
        self.parts = [f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(label)}">']

    def x(self, time: float) -> float:
        return LEFT + (time - self.start) / (self.end - self.start) * (self.width - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return self.height - BOTTOM - min(value / self.top, 1.0) * (self.height - TOP - BOTTOM)

    def axes(self) -> None:
        right, bottom = self.width - RIGHT, self.height - BOTTOM
        for value in self.steps:
            y = self.y(value)
            self.parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
                              f'<text class="tick" x="{LEFT - 7}" y="{y + 3.5:.1f}" text-anchor="end">'
                              f'{html.escape(tick_text(self.text(value))) if value else 0}</text>')
        self.time_axis(bottom)

    def time_axis(self, bottom: float) -> None:
        ticks = time_steps(self.start, self.end, 8 if self.width > 700 else 6)
        step = ticks[1] - ticks[0] if len(ticks) > 1 else 0
        for time in ticks:
            x = self.x(time)
            anchor = "end" if x > self.width - RIGHT - 14 else "middle"
            self.parts.append(f'<line class="tickmark" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
                              f'<text class="tick" x="{x:.1f}" y="{bottom + 17}" text-anchor="{anchor}">'
                              f'{time_text(time, step)}</text>')
        self.parts.append(f'<line class="axis" x1="{LEFT}" x2="{self.width - RIGHT}" y1="{bottom}" y2="{bottom}"/>')

    def finish(self, hover: dict) -> str:
        hover |= {"x0": LEFT, "x1": self.width - RIGHT, "y0": TOP, "y1": self.height - BOTTOM}
        self.parts.append(f'<line class="pointer" y1="{TOP}" y2="{self.height - BOTTOM}"/></svg>')
        return (f'<div class="plot">{"".join(self.parts)}'
                f'<script type="application/json">{json.dumps(hover).replace("<", chr(92) + "u003c")}</script></div>')


def legend(series: Sequence[Series]) -> str:
    if len(series) < 2:
        return ""
    items = "".join(f'<li><i style="background:{s.colour}"></i>{html.escape(s.name)}</li>' for s in series)
    return f'<ul class="legend">{items}</ul>'


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _hover(times: Sequence[float], series: Sequence[Series], text: Callable[[float], str]) -> dict:
    return {
        "at": [time_text(time) if time >= 600 else f"{time:.3g} s" for time in times],
        "names": [s.name for s in series],
        "colours": [s.colour for s in series],
        "values": [["" if v is None else text(v) for v in s.values] for s in series],
    }


def _thin(series: Sequence[Series]) -> float:
    return 1.6 if len(series) <= 8 else 1.0


def lines(times: Sequence[float], span: tuple[float, float], series: Sequence[Series], text: Callable[[float], str],
          label: str, width: int = 540, height: int = 200, top: Optional[float] = None) -> str:
    highest = max((v for s in series for v in s.values if v is not None), default=0.0)
    chart = Chart(width, height, *span, top if top is not None else highest, text, label)
    chart.axes()
    for s in series:
        run: list[tuple[float, float]] = []
        for time, value in [*zip(times, s.values), (0.0, None)]:
            if value is not None:
                run.append((chart.x(time), chart.y(value)))
                continue
            if len(run) == 1:
                chart.parts.append(f'<circle cx="{run[0][0]:.1f}" cy="{run[0][1]:.1f}" r="1.6" fill="{s.colour}"/>')
            elif run:
                chart.parts.append(f'<path class="line" stroke="{s.colour}" stroke-width="{_thin(series)}" '
                                   f'd="{_path(run)}"/>')
            run = []
    return legend(series) + chart.finish(_hover(times, series, text))


def stacked(times: Sequence[float], span: tuple[float, float], series: Sequence[Series], text: Callable[[float], str],
            label: str, width: int = 540, height: int = 200, top: Optional[float] = None) -> str:
    """Areas on top of each other; the first is the lowest.  They reach to both ends of the span."""
    sums = [sum(v or 0.0 for v in cell) for cell in zip(*(s.values for s in series))]
    chart = Chart(width, height, *span, top if top is not None else max(sums, default=0.0), text, label)
    floor = [0.0] * len(times)
    areas = []
    edges = [span[0], *times[1:-1], span[1]] if len(times) > 1 else list(times)
    for s in series:
        roof = [low + (v or 0.0) for low, v in zip(floor, s.values)]
        outline = [(chart.x(t), chart.y(v)) for t, v in zip(edges, roof)]
        outline += [(chart.x(t), chart.y(v)) for t, v in reversed(list(zip(edges, floor)))]
        areas.append(f'<path class="area" fill="{s.colour}" d="{_path(outline)}Z"/>')
        floor = roof
    chart.parts += areas
    chart.axes()
    hover = _hover(times, series, text)
    return legend(series) + chart.finish(hover)


def bars(labels: Sequence[str], series: Sequence[Series], label: str, width: int = 540, height: int = 220) -> str:
    """Stacked bars, one for each label."""
    sums = [sum(v or 0.0 for v in cell) for cell in zip(*(s.values for s in series))]
    chart = Chart(width, height, 0.0, float(len(labels)), max(sums, default=0.0), numbers.count, label)
    bottom = height - BOTTOM
    for value in chart.steps:
        y = chart.y(value)
        chart.parts.append(f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                           f'<text class="tick" x="{LEFT - 7}" y="{y + 3.5:.1f}" text-anchor="end">'
                           f'{numbers.count(value)}</text>')
    every = math.ceil(len(labels) / (width / 62))
    for i, text in enumerate(labels):
        left, right, at = chart.x(i) + 1, chart.x(i + 1) - 1, 0.0
        for s in series:
            value = s.values[i] or 0.0
            if value:
                low, high = chart.y(at), chart.y(at + value)
                tall = max(low - high, 0.8)
                chart.parts.append(f'<rect x="{left:.1f}" y="{low - tall:.1f}" width="{right - left:.1f}" '
                                   f'height="{tall:.1f}" fill="{s.colour}"/>')
                at += value
        if i % every == 0:
            chart.parts.append(f'<text class="tick" x="{chart.x(i):.1f}" y="{bottom + 17}" text-anchor="middle">{text}</text>')
    chart.parts.append(f'<line class="axis" x1="{LEFT}" x2="{width - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    ends = [*labels[1:], "more"]
    hover = _hover([0.0] * len(labels), series, numbers.count)
    hover["at"] = [f"{low} to {high}" for low, high in zip(labels, ends)]
    return legend(series) + chart.finish(hover)


# --- the map of keys ------------------------------------------------------------------------------


def _png(rows: list[list[tuple[int, int, int]]]) -> str:
    """A picture as a data URI."""
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    raw = b"".join(b"\0" + bytes(channel for pixel in row for channel in pixel) for row in rows)
    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 2, 0, 0, 0)
    picture = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(picture).decode()


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _mixed(cell: Sequence[int], colours: list[tuple[int, int, int]]) -> tuple[int, int, int]:
    """Colours of the nodes, by how many of the keys each has; grey for keys on their way."""
    here = sum(cell)
    if here == 0:
        return 128, 128, 128
    red, green, blue = (round(sum(n * c[i] for n, c in zip(cell, colours)) / here) for i in range(3))
    return red, green, blue


def heat_map(span: tuple[float, float], times: Sequence[float], cells: list[list[list[int]]], nodes: Sequence[int],
             num_keys: int, width: int = 1100, height: int = 300) -> str:
    """Time to the right, keys upwards, coloured by the nodes that have them."""
    n_ranges = len(cells[0])
    colours = [_rgb(node_colour(i, len(nodes))) for i in range(len(nodes))]
    picture = _png([[_mixed(column[b], colours) for column in cells] for b in reversed(range(n_ranges))])
    chart = Chart(width, height, *span, 1.0, str, "which node had the keys of each range, over time")
    bottom, tall = height - BOTTOM, height - TOP - BOTTOM
    chart.parts.append(f'<image x="{LEFT}" y="{TOP}" width="{width - LEFT - RIGHT}" height="{tall}" '
                       f'preserveAspectRatio="none" style="image-rendering:pixelated" href="{picture}"/>')
    for i in range(5):
        key = num_keys * i // 4
        y = bottom - tall * i / 4
        chart.parts.append(f'<text class="tick" x="{LEFT - 7}" y="{y + (4 if i < 4 else 8) - (4 if i == 0 else 0):.1f}" '
                           f'text-anchor="end">{numbers.count(key)}</text>')
    chart.time_axis(bottom)
    borders = [num_keys * b // n_ranges for b in range(n_ranges + 1)]
    hover = {
        "at": [f"{time:.3g} s" for time in times],
        "ranges": [f"keys {low:,} to {high - 1:,}" for low, high in zip(borders, borders[1:])],
        "names": [f"node {node}" for node in nodes],
        "colours": [node_colour(i, len(nodes)) for i in range(len(nodes))],
        "cells": cells,
    }
    series = [Series(f"node {node}", node_colour(i, len(nodes)), []) for i, node in enumerate(nodes)]
    return legend(series) + chart.finish(hover)


def strips(span: tuple[float, float], rows: Sequence[tuple[str, Sequence[tuple[float, float, str, str]]]], height_each: int = 16,
           width: int = 1100) -> str:
    """A row for each name, with coloured pieces of time."""
    height = TOP + BOTTOM + max(len(rows), 1) * height_each
    left = 178
    scale = (width - left - RIGHT) / max(span[1] - span[0], 1e-9)
    parts = [f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="who waited when">']
    for i, (name, pieces) in enumerate(rows):
        y = TOP + i * height_each
        parts.append(f'<text class="tick" x="{left - 8}" y="{y + height_each - 5}" text-anchor="end">{html.escape(name)}</text>'
                     f'<rect class="row" x="{left}" y="{y + 1}" width="{width - left - RIGHT}" height="{height_each - 3}"/>')
        for begin, end, colour, text in pieces:
            x = left + (begin - span[0]) * scale
            wide = max((end - begin) * scale, 0.4)
            parts.append(f'<rect x="{x:.1f}" y="{y + 1}" width="{wide:.2f}" height="{height_each - 3}" fill="{colour}">'
                         f'<title>{html.escape(text)}, {numbers.span(end - begin)} from {begin:.4g} s on</title></rect>')
    bottom = height - BOTTOM
    ticks = time_steps(*span, 8)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 0
    for time in ticks:
        x = left + (time - span[0]) * scale
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{time_text(time, step)}</text>')
    parts.append("</svg>")
    return f'<div class="plot">{"".join(parts)}</div>'
