"""show.py - what one sees: a bar while it works, lines, a table, a picture.  Rank 0 speaks."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from godwit.comm import COMM_WORLD as comm

WIDTH = 28


def say(text: str = "") -> None:
    if comm.rank == 0:
        print(text, flush=True)


class Bar:
    """On a terminal a line that is written again and again; elsewhere nothing."""

    def __init__(self, what: str, n: int) -> None:
        self.what, self.n, self.done, self.start, self.shown = what, max(1, n), 0, time.monotonic(), 0.0
        self.visible = comm.rank == 0 and sys.stdout.isatty()

    def advance(self, text: str) -> None:
        self.done += 1
        now = time.monotonic()
        if not self.visible or (now - self.shown < 0.1 and self.done < self.n):
            return
        self.shown = now
        full = WIDTH * self.done // self.n
        print(f"\r{self.what} {'█' * full}{'·' * (WIDTH - full)} {text}\x1b[K", end="", flush=True)

    def clear(self) -> None:
        if self.visible:
            print("\r\x1b[K", end="", flush=True)


HEAD = f"{'epoch':>6} {'loss':>9} {'triples/s':>10} {'local':>7} {'moved':>9} {'copies':>8} {'MRR':>6} {'seconds':>8}"


def line(epoch: dict[str, Any]) -> str:
    mrr = f"{epoch['mrr']:.3f}" if epoch["mrr"] is not None else ""
    return (f"{epoch['epoch']:>6} {epoch['loss']:>9.4f} {epoch['triples_per_s']:>10,.0f} {epoch['local']:>7.1%} "
            f"{epoch['moved']:>9,} {epoch['copies']:>8,} {mrr:>6} {epoch['seconds']:>8.1f}")


def results(rows: dict[str, Any]) -> None:
    """Parts of the graph with their Quality, as a table."""
    say(f"\n{'':<7} {'MRR':>7} {'Hits@1':>7} {'Hits@3':>7} {'Hits@10':>8}")
    for name, quality in rows.items():
        say(f"{name:<7} {quality.mrr:>7.3f} {quality.hits1:>7.3f} {quality.hits3:>7.3f} {quality.hits10:>8.3f}")


def picture(history: list[dict[str, Any]], title: str, path: Path) -> None:
    """Loss, MRR and locality over the epochs."""
    if comm.rank != 0 or not history:
        return
    try:
        import matplotlib
    except ImportError:
        say("no picture: matplotlib is not installed (pip install matplotlib)")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.2), constrained_layout=True)
    measured = [epoch for epoch in history if epoch["mrr"] is not None]
    for axis, name, epochs, key, color in ((axes[0], "loss", history, "loss", "#c8553d"),
                                           (axes[1], "MRR, validation", measured, "mrr", "#2d6a9f"),
                                           (axes[2], "local accesses, %", history, "local", "#3b7d4f")):
        values = [epoch[key] * (100 if key == "local" else 1) for epoch in epochs]
        axis.plot([epoch["epoch"] for epoch in epochs], values, color=color, linewidth=1.8,
                  marker="o" if len(epochs) < 30 else None, markersize=3)
        axis.set_title(name, fontsize=10, loc="left")
        axis.set_xlabel("epoch", fontsize=9)
        axis.tick_params(labelsize=8)
        axis.grid(True, linewidth=0.4, alpha=0.5)
        axis.spines[["top", "right"]].set_visible(False)
        if key != "loss":
            axis.set_ylim(0, 1.02 if key == "mrr" else 102)
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    figure.savefig(path, dpi=110)
    say(f"picture: {path}")
