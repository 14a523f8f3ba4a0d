"""What one sees of a job: lines, a bar while it works, tables that line up, pictures.

Rank 0 speaks for all.  Nothing here is collective.

>>> print(table(["fruit", "kg"], [["apples", "1.5"], ["figs", "12.0"]]))
fruit     kg
apples   1.5
figs    12.0
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from . import job

__all__ = ["Bar", "Curve", "curves", "lines", "say", "speaker", "speaks", "table"]

_CELLS = 28  # of a bar
_PAUSE = 0.1  # seconds, at least, between two drawings of it
_COLORS = ("#c8553d", "#2d6a9f", "#3b7d4f", "#8a5fa8", "#b8860b", "#4a4a4a")


_told: Optional[bool] = None  # by speaker()


def speaks() -> bool:
    """Whether this process is the one whose words are read: rank 0, or one that is in no job."""
    return _told if _told is not None else not job.joined() or job.world().rank == 0


def speaker(yes: bool) -> None:
    """For a process that joined its job from C, of which `godwit.world()` knows nothing: whether it speaks."""
    global _told
    _told = yes


def say(text: str = "") -> None:
    """Print a line, if this is rank 0."""
    if speaks():
        print(text, flush=True)


class Bar:
    """Progress of `n` steps: on a terminal a line that is written again and again, elsewhere nothing.

    `text` stands behind the bar; to make it anew is worth the while only when it is `due`.  `visible` is for programs that
    know better than `speaks` who speaks.
    """

    def __init__(self, what: str, n: int, visible: Optional[bool] = None) -> None:
        self.what, self.n, self.done, self.text, self._drawn = what, max(1, n), 0, "", 0.0
        self.visible = (speaks() if visible is None else visible) and sys.stdout.isatty()

    def due(self) -> bool:
        """Whether the next step will be seen."""
        return self.visible and (time.monotonic() - self._drawn >= _PAUSE or self.done + 1 >= self.n)

    def advance(self, steps: int = 1) -> None:
        """So many steps more are done."""
        drawn = self.due()
        self.done += steps
        if drawn:
            self._drawn = time.monotonic()
            full = min(_CELLS, _CELLS * self.done // self.n)
            print(f"\r{self.what} {'█' * full}{'·' * (_CELLS - full)} {self.text}\x1b[K", end="", flush=True)

    def clear(self) -> None:
        """Take the bar away."""
        if self.visible:
            print("\r\x1b[K", end="", flush=True)


def lines(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Rows as lines of columns that line up, those that are said to be `right` at their right ends."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(right))]
    return ["  ".join(cell.rjust(width) if side else cell.ljust(width)
                      for cell, width, side in zip(row, widths, right)).rstrip() for row in rows]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column has names and whose others have figures."""
    return "\n".join(lines([heads, *rows], [place > 0 for place in range(len(heads))]))


@dataclass
class Curve:
    """One panel of a picture.  What is None in `y` was not measured."""

    title: str
    x: Sequence[float]
    y: Sequence[Optional[float]]
    limits: Optional[tuple[float, float]] = None


def curves(panels: Sequence[Curve], title: str, path: Union[str, Path], xlabel: str = "epoch") -> None:
    """Draw panels beside each other into a file, PNG or SVG by its name.  Says so if matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: matplotlib is not installed (pip install matplotlib)", flush=True)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(1, len(panels), figsize=(3.7 * len(panels), 3.2), constrained_layout=True, squeeze=False)
    for axis, panel, color in zip(axes[0], panels, _COLORS * len(panels)):
        known = [(x, y) for x, y in zip(panel.x, panel.y) if y is not None]
        axis.plot([x for x, _ in known], [y for _, y in known], color=color, linewidth=1.8,
                  marker="o" if len(known) < 30 else None, markersize=3)
        axis.set_title(panel.title, fontsize=10, loc="left")
        axis.set_xlabel(xlabel, fontsize=9)
        axis.tick_params(labelsize=8)
        axis.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        axis.grid(True, linewidth=0.4, alpha=0.5)
        axis.spines[["top", "right"]].set_visible(False)
        if panel.limits is not None:
            axis.set_ylim(*panel.limits)
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    print(f"picture: {path}", flush=True)
