"""Draws what tests/sim/scale has measured, as an SVG: small pictures over the number of nodes.

    plot_scale.py figures.csv picture.svg

Needs nothing but Python.  The dashed line is the logarithm of the number of nodes, from the first point on.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Sequence
from pathlib import Path

PANELS = [
    ("bytes per access", ["bytes"], True),
    ("messages per access", ["messages", "notes"], True),
    ("hops per request", ["hops"], True),
    ("keys fetched per access", ["fetched", "moves", "grants"], True),
    ("keys looked at in a round", ["round_keys"], True),
    ("memory of a node, KiB", ["memory", "words", "rows"], True),
    ("local share of accesses, %", ["local"], False),
    ("busiest node's bytes over the mean", ["busiest"], True),
]
COLUMNS, WIDTH, HEIGHT = 4, 250, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 30, 30  # of a panel
COLOURS = ["#1f77b4", "#d62728", "#2ca02c"]


def nice_top(value: float) -> float:
    """The least 1, 2, 2.5 or 5 times a power of ten that is not below `value`."""
    power = 10 ** math.floor(math.log10(value)) if value > 0 else 1
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * 0.999)


def panel(title: str, names: Sequence[str], with_log: bool, rows: Sequence[dict[str, float]]) -> list[str]:
    nodes = [row["nodes"] for row in rows]
    logs = [math.log2(n) for n in nodes]
    guide = [rows[0][names[0]] * x / logs[0] for x in logs] if with_log else []
    top = 100 if title.endswith("%") else nice_top(max([row[name] for row in rows for name in names] + guide[:1]) * 1.05)

    def x_of(log: float) -> float:
        return LEFT + (log - logs[0]) / (logs[-1] - logs[0]) * (WIDTH - LEFT - RIGHT)

    def y_of(value: float) -> float:
        return HEIGHT - BOTTOM - min(value / top, 1.2) * (HEIGHT - TOP - BOTTOM)

    def line(values: Sequence[float], style: str) -> str:
        points = " ".join(f"{x_of(x):.1f},{y_of(v):.1f}" for x, v in zip(logs, values) if v <= top * 1.001)
        return f'<polyline points="{points}" fill="none" {style}/>'

    parts = [f'<text x="{LEFT}" y="16" font-weight="bold">{title}</text>']
    for tick in range(5):
        value = top * tick / 4
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(value):.1f}" y2="{y_of(value):.1f}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 5}" y="{y_of(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts += [f'<text x="{x_of(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{n:,.0f}</text>'
              for x, n in zip(logs, nodes)]
    if with_log:
        parts.append(line(guide, 'stroke="#888" stroke-dasharray="4 3"'))
    for name, colour in zip(names, COLOURS):
        values = [row[name] for row in rows]
        parts.append(line(values, f'stroke="{colour}" stroke-width="2"'))
        parts += [f'<circle cx="{x_of(x):.1f}" cy="{y_of(v):.1f}" r="3" fill="{colour}"/>' for x, v in zip(logs, values)]
        if len(names) > 1:
            parts.append(f'<text x="{WIDTH - RIGHT}" y="{TOP + 12 + 13 * names.index(name)}" text-anchor="end" '
                         f'fill="{colour}">{name}</text>')
    return parts


def main() -> None:
    figures, picture = Path(sys.argv[1]), Path(sys.argv[2])
    with figures.open() as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    height = HEIGHT * math.ceil(len(PANELS) / COLUMNS)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * COLUMNS} {height}" '
             'font-family="sans-serif" font-size="11">', f'<rect width="{WIDTH * COLUMNS}" height="{height}" fill="white"/>']
    for i, (title, names, with_log) in enumerate(PANELS):
        parts.append(f'<g transform="translate({i % COLUMNS * WIDTH},{i // COLUMNS * HEIGHT})">')
        parts += panel(title, names, with_log, rows)
        parts.append("</g>")
    picture.write_text("\n".join(parts + ["</svg>", ""]))
    print(f"picture: {picture}")


if __name__ == "__main__":
    main()
