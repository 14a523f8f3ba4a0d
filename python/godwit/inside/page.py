"""The page around the charts: one file, light and dark, with a script for the text under the pointer."""

from __future__ import annotations

import html
from collections.abc import Sequence

STYLE = """
:root { color-scheme: light dark; --paper: #f6f7f9; --card: #ffffff; --ink: #1d2630; --soft: #66727f; --line: #e2e6eb;
  --axis: #9aa5b1; --shadow: 0 1px 3px rgb(20 30 40 / .07); }
@media (prefers-color-scheme: dark) { :root { --paper: #12161b; --card: #1b2128; --ink: #e6eaee; --soft: #98a4b0;
  --line: #2c343d; --axis: #5b6773; --shadow: none; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 28px 20px 60px; background: var(--paper); color: var(--ink);
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; }
h1 { font-size: 24px; font-weight: 650; margin: 0 0 2px; letter-spacing: -.01em; }
h2 { font-size: 18px; font-weight: 650; margin: 34px 0 12px; }
h3 { font-size: 14px; font-weight: 650; margin: 0; }
p { margin: 3px 0 10px; color: var(--soft); }
.about { margin-bottom: 18px; overflow-wrap: anywhere; }
.warning { border-left: 3px solid #d99a2b; padding: 6px 12px; background: var(--card); color: var(--ink); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px; margin-bottom: 14px; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; box-shadow: var(--shadow); }
.tile { padding: 10px 14px; }
.tile b { display: block; font-size: 21px; font-weight: 600; letter-spacing: -.01em; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
.tile span { color: var(--soft); font-size: 12.5px; }
.cards { display: grid; grid-template-columns: 1fr 1fr; gap: 14px; }
@media (max-width: 820px) { .cards { grid-template-columns: minmax(0, 1fr); } .wide .plot { overflow-x: auto; }
  .wide .chart { min-width: 760px; } }
.card { padding: 14px 16px 10px; min-width: 0; }
.card.wide { grid-column: 1 / -1; }
.card p { font-size: 12.5px; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 14px; margin: 0 0 4px; padding: 0; font-size: 12.5px;
  color: var(--soft); }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px; }
.plot { position: relative; }
.chart { display: block; width: 100%; height: auto; overflow: visible; }
.chart .grid { stroke: var(--line); stroke-width: 1; }
.chart .axis, .chart .tickmark { stroke: var(--axis); stroke-width: 1; }
.chart .tick { fill: var(--soft); font-size: 11px; font-variant-numeric: tabular-nums; }
.chart .line { fill: none; stroke-linejoin: round; stroke-linecap: round; }
.chart .area { fill-opacity: .82; }
.chart .row { fill: var(--line); fill-opacity: .45; }
.chart .pointer { stroke: var(--ink); stroke-opacity: .55; stroke-width: 1; visibility: hidden; }
#tip { position: fixed; pointer-events: none; visibility: hidden; z-index: 9; background: var(--card); color: var(--ink);
  border: 1px solid var(--axis); border-radius: 6px; padding: 7px 10px; font-size: 12.5px; box-shadow: 0 3px 12px rgb(0 0 0 / .2);
  max-width: 340px; font-variant-numeric: tabular-nums; }
#tip b { display: block; margin-bottom: 2px; }
#tip div { display: flex; justify-content: space-between; gap: 18px; }
#tip i { display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin-right: 6px; }
table { width: 100%; border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 4px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 500; }
th.words, td.words { text-align: left; }
tr:last-child td { border-bottom: 0; }
.scroll { overflow-x: auto; }
footer { margin-top: 30px; color: var(--soft); font-size: 12.5px; }
"""

SCRIPT = """
const tip = document.getElementById('tip');
const line = (colour, name, value) => {
  const row = document.createElement('div'), left = document.createElement('span'), box = document.createElement('i');
  box.style.background = colour;
  left.append(box, name);
  const right = document.createElement('span');
  right.textContent = value;
  row.append(left, right);
  return row;
};
for (const plot of document.querySelectorAll('.plot')) {
  const script = plot.querySelector('script'), svg = plot.querySelector('svg');
  if (!script) continue;
  const data = JSON.parse(script.textContent), mark = svg.querySelector('.pointer'), n = data.at.length;
  svg.addEventListener('pointermove', event => {
    const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
    const i = Math.floor((x - data.x0) / (data.x1 - data.x0) * n);
    if (i < 0 || i >= n || y < data.y0 || y > data.y1) { hide(); return; }
    const at = data.x0 + (i + .5) / n * (data.x1 - data.x0);
    mark.setAttribute('x1', at); mark.setAttribute('x2', at); mark.style.visibility = 'visible';
    tip.replaceChildren();
    const head = document.createElement('b');
    head.textContent = data.at[i];
    tip.append(head);
    if (data.cells) {
      const b = Math.min(data.ranges.length - 1, Math.floor((data.y1 - y) / (data.y1 - data.y0) * data.ranges.length));
      head.textContent = data.ranges[b] + ', at ' + data.at[i];
      data.cells[i][b].forEach((count, k) => tip.append(line(data.colours[k], data.names[k], count.toLocaleString('en'))));
    } else {
      const shown = data.names.map((name, k) => [name, data.colours[k], data.values[k][i]]).filter(row => row[2] !== '');
      for (const [name, colour, value] of shown.slice(0, 16)) tip.append(line(colour, name, value));
      if (shown.length > 16) tip.append('... and ' + (shown.length - 16) + ' more');
    }
    tip.style.visibility = 'visible';
    const wide = tip.offsetWidth, tall = tip.offsetHeight;
    tip.style.left = (event.clientX + 16 + wide > innerWidth ? event.clientX - wide - 14 : event.clientX + 16) + 'px';
    tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - tall - 6)) + 'px';
  });
  const hide = () => { tip.style.visibility = 'hidden'; mark.style.visibility = 'hidden'; };
  svg.addEventListener('pointerleave', hide);
}
"""


def tile(value: str, text: str) -> str:
    return f'<div class="tile"><b>{html.escape(value)}</b><span>{html.escape(text)}</span></div>'


def card(title: str, text: str, body: str, wide: bool = False) -> str:
    return (f'<section class="card{" wide" if wide else ""}"><h3>{html.escape(title)}</h3><p>{html.escape(text)}</p>'
            f'{body}</section>')


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """The first `words` columns are text, the others numbers."""
    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(f'<{tag}{" class=words" if i < words else ""}>{html.escape(text)}</{tag}>' for i, text in enumerate(row))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{cells("th", heads)}</tr></thead><tbody>{body}</tbody></table></div>'


def page(title: str, body: str) -> str:
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            f'content="width=device-width, initial-scale=1"><title>{html.escape(title)}</title>'
            f'<style>{STYLE}</style></head>\n<body><main>{body}</main><div id="tip"></div>'
            f'<script>{SCRIPT}</script></body></html>\n')
