"""Draws a benchmark as an SVG, without any plotting library.

Every shape is a row of bars, one for each library, as long as its median GFLOP/s; the thin line goes from the
slowest to the fastest repeat, the dashed line is the machine's peak.
"""

from __future__ import annotations

from html import escape

from .bench import Bench, Row, names_of

COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22",
           "#17becf", "#393b79", "#637939", "#8c6d31", "#843c39")
LEFT, RIGHT, BAR, GAP, WIDTH = 190, 70, 13, 14, 960


def _ticks(top: float) -> list[float]:
    step = 10 ** len(str(int(top))) / 100 or 1
    for candidate in (step, 2 * step, 5 * step, 10 * step, 20 * step):
        if top / candidate <= 8:
            return [candidate * i for i in range(int(top / candidate) + 1)]
    return [0.0, top]


def _text(x: float, y: float, text: str, anchor: str = "start", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{escape(text)}</text>'


def svg(bench: Bench) -> str:
    """The whole picture: one panel for each type and number of threads."""
    names = names_of(bench.rows)
    colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    parts: list[str] = []
    y = 28.0
    parts.append(_text(16, y, f"{bench.operation}: GFLOP/s by library (longer is better)", extra='font-size="16" font-weight="bold"'))
    y += 12
    x = 16.0
    for name in names:  # the legend, wrapped
        wide = 26 + 7.2 * len(name)
        if x + wide > WIDTH - 16:
            x, y = 16.0, y + 18
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="11" height="11" fill="{colour[name]}"/>')
        parts.append(_text(x + 16, y + 10, name))
        x += wide
    y += 34
    for panel, peak in bench.peaks.items():
        dtype, _, threads = panel.partition(" x ")
        rows = [row for row in bench.rows if row.dtype == dtype and row.threads == int(threads)]
        if rows:
            y = _panel(parts, rows, panel, peak, colour, y)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 8:.0f}" width="{WIDTH}" '
            f'height="{y + 8:.0f}" font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
            + "".join(parts) + "</svg>\n")


def _panel(parts: list[str], rows: list[Row], panel: str, peak: float, colour: dict[str, str], y: float) -> float:
    top = max([peak, *(row.best for row in rows)]) * 1.04
    scale = (WIDTH - LEFT - RIGHT) / top
    shapes = list(dict.fromkeys(row.shape for row in rows))
    height = sum(GAP + BAR * sum(row.shape == shape for row in rows) for shape in shapes)
    threads = panel.rpartition(" ")[2]
    parts.append(_text(16, y, f"{panel.partition(' ')[0]}, {threads} thread{'s' if threads != '1' else ''}",
                       extra='font-weight="bold"'))
    y += 10
    for tick in _ticks(top):
        at = LEFT + tick * scale
        parts.append(f'<line x1="{at:.1f}" y1="{y:.1f}" x2="{at:.1f}" y2="{y + height:.1f}" stroke="#ddd"/>')
        parts.append(_text(at, y + height + 14, f"{tick:g}", "middle", 'fill="#555"'))
    at = LEFT + peak * scale
    parts.append(f'<line x1="{at:.1f}" y1="{y - 6:.1f}" x2="{at:.1f}" y2="{y + height:.1f}" stroke="#000" stroke-dasharray="5 4"/>')
    parts.append(_text(at, y - 9, f"peak {peak:.0f}", "middle"))
    for shape in shapes:
        mine = sorted((row for row in rows if row.shape == shape), key=lambda row: -row.median)
        parts.append(_text(LEFT - 8, y + GAP / 2 + BAR * len(mine) / 2 + 4, shape, "end",
                           f'font-size="{12 if len(shape) < 24 else 10}"'))
        y += GAP / 2
        for row in mine:
            parts.append(f'<g><title>{escape(f"{row.described}: {row.median:.1f} GFLOP/s, {100 * row.share:.0f} % of peak")}</title>'
                         f'<rect x="{LEFT}" y="{y:.1f}" width="{max(row.median * scale, .5):.1f}" height="{BAR - 2}" '
                         f'fill="{colour[row.library]}"/>')
            if row.best > row.worst:
                low, high = LEFT + row.worst * scale, LEFT + row.best * scale
                middle = y + (BAR - 2) / 2
                parts.append(f'<line x1="{low:.1f}" y1="{middle:.1f}" x2="{high:.1f}" y2="{middle:.1f}" stroke="#444"/>')
            word = f"{row.median:.1f}" if row.correct else ("failed" if row.problem else f"{row.median:.1f} WRONG")
            end = LEFT + max(row.median, row.best) * scale + 5
            parts.append(_text(end, y + BAR - 3, word, extra='font-size="10" fill="#333"') + "</g>")
            y += BAR
        y += GAP / 2
    return y + 42
