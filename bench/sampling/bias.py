#!/usr/bin/env python3
"""How the scheme `local` draws, and how it should: counts draws on two nodes, and draws a picture of them.

    godwit run -n 2 --node-size 1 bench/sampling/bias.py docs/sampling-bias.svg

Each of two workers, on a node of its own, draws a million keys of 200 from the log-uniform distribution.  First keys are where
they are at the beginning, every second one on either node; then node 0 has localized keys 0 to 19.  The picture has the
probability of the first 24 keys, and how often the workers drew them.  Needs NumPy.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np

import godwit

N_KEYS, N_DRAWS, BATCH, SHOWN, MOVED = 200, 1_000_000, 10_000, 24, 20
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 440, 240, 46, 44, 40  # of a panel
TOP_SHARE = 0.25
SERIES = [("wanted", "#999999"), ("worker on node 0", "#1f77b4"), ("worker on node 1", "#d62728"), ("both together", "#2ca02c")]


def shares(w: godwit.Worker) -> np.ndarray:
    """How often this worker draws each key."""
    keys, values, counts = np.empty(BATCH, np.int64), np.empty(BATCH, np.float32), np.zeros(N_KEYS)
    for _ in range(N_DRAWS // BATCH):
        w.pull_sample(w.prepare_sample(BATCH), keys, values)
        counts += np.bincount(keys, minlength=N_KEYS)
    return counts / counts.sum()


def of_both(me: godwit.World, mine: np.ndarray) -> list[np.ndarray]:
    for rank in range(2):
        godwit.send(rank, pickle.dumps(mine))
    return [pickle.loads(godwit.recv(rank)) for rank in range(2)]


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    """Total variation: the share of draws that would have to be others."""
    return float(abs(found - wanted).sum() / 2)


def panel(title: str, series: list[np.ndarray]) -> list[str]:
    def y_of(share: float) -> float:
        return HEIGHT - BOTTOM - min(share, TOP_SHARE) / TOP_SHARE * (HEIGHT - TOP - BOTTOM)

    step = (WIDTH - LEFT - 10) / SHOWN
    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{title}</text>']
    for percent in range(0, int(TOP_SHARE * 100) + 1, 5):
        y = y_of(percent / 100)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>')
    for number, ((_, colour), values) in enumerate(zip(SERIES, series)):
        width = step / (len(SERIES) + 1)
        for key in range(SHOWN):
            y = y_of(values[key])
            parts.append(f'<rect x="{LEFT + key * step + number * width:.1f}" y="{y:.1f}" width="{width:.1f}" '
                         f'height="{HEIGHT - BOTTOM - y:.1f}" fill="{colour}"/>')
    parts += [f'<text x="{LEFT + (key + 0.4) * step:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{key}</text>'
              for key in range(0, SHOWN, 2)]
    parts.append(f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - BOTTOM + 30}" text-anchor="middle">key</text>')
    for number, (name, colour) in enumerate(SERIES):
        parts.append(f'<text x="{WIDTH - 14}" y="{TOP + 19 + 14 * number}" stroke="white" stroke-width="3" paint-order="stroke" text-anchor="end" fill="{colour}">{name}</text>')
    return parts


def draw(picture: Path, panels: list[tuple[str, list[np.ndarray]]]) -> None:
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(panels)} {HEIGHT}" '
             'font-family="sans-serif" font-size="11">',
             f'<rect width="{WIDTH * len(panels)}" height="{HEIGHT}" fill="white"/>']
    for number, (title, series) in enumerate(panels):
        parts += [f'<g transform="translate({number * WIDTH},0)">', *panel(title, series), "</g>"]
    picture.write_text("\n".join([*parts, "</svg>", ""]))
    print(f"picture: {picture}")


def main() -> None:
    me = godwit.init()
    if me.nodes != 2 or me.size != 2:
        sys.exit("start it on two nodes: godwit run -n 2 --node-size 1 bench/sampling/bias.py picture.svg")
    ranks = np.arange(1, N_KEYS + 1)
    wanted = np.log((ranks + 1) / ranks) / np.log(N_KEYS + 1)
    panels = []
    with godwit.Parameters(N_KEYS, 1) as kv, kv.worker() as w:
        kv.enable_sampling("local", "log-uniform", seed=1)
        for title, moved in (("keys where they begin, in turns on the nodes", 0), (f"keys 0 to {MOVED - 1} are on node 0", MOVED)):
            w.barrier()
            if me.rank == 0:
                w.localize(np.arange(moved))
            w.barrier()
            both = of_both(me, shares(w))
            series = [wanted, *both, sum(both) / 2]
            panels.append((title, series))
            if me.rank == 0:
                print(f"{title}: of 100 draws, so many would have to be other keys: worker 0 {100 * distance(both[0], wanted):.1f}, "
                      f"worker 1 {100 * distance(both[1], wanted):.1f}, both together {100 * distance(series[3], wanted):.1f}; "
                      f"key 0 comes {100 * wanted[0]:.1f} % wanted, {100 * both[0][0]:.1f} %, {100 * both[1][0]:.1f} %, "
                      f"{100 * series[3][0]:.1f} %")
        w.barrier()
    if me.rank == 0:
        draw(Path(sys.argv[1]), panels)


if __name__ == "__main__":
    main()
