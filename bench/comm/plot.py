"""Times over sizes: a picture by matplotlib, or a chart in letters where that is not installed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from peers import NAMES, ROOT
from report import ALLREDUCE_SIZES, N_RANKS, PYTHON_DOUBLES, SIZE_NAMES

ROWS_PER_DECADE = 3
COLUMN = 8


@dataclasses.dataclass(frozen=True)
class Series:
    name: str
    letter: str
    style: str  # matplotlib's
    points: dict[int, float]  # us by bytes


def series(rounds: Sequence[dict[str, Any]], n_ranks: int, peer: str, kind: str, scale: int, name: str, letter: str,
           style: str) -> Series:
    """`scale`: bytes of what the cells count."""
    points = {}
    for n in PYTHON_DOUBLES if scale == 8 else ALLREDUCE_SIZES:
        times = [found[str(n_ranks)].get(peer, {}).get(f"{kind}:{n}", {}).get("us") for found in rounds]
        if times and None not in times:
            points[n * scale] = median(times)
    return Series(name, letter, style, points)


def all_series(run: dict[str, Any], n_ranks: int) -> list[Series]:
    found = [series(run["c"], n_ranks, peer, "allreduce", 1, name, letter, style)
             for (peer, name), letter, style in zip(NAMES.items(), "GOM", ("C0o-", "C1s-", "C2^-"))]
    found += [series(run["python"], n_ranks, peer, "forward", 8, f"{name} from Python", letter, style)
              for peer, name, letter, style in (("godwit", "Godwit", "p", "C0D"), ("gloo", "gloo", "g", "C3X"),
                                                ("mpi4torch", "mpi4torch", "m", "C1P"))]
    return [one for one in found if one.points]


def draw(run: dict[str, Any], picture: Path, figures: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        for n_ranks in N_RANKS:
            print_chart(all_series(run, n_ranks), n_ranks)
        print("\nA chart in letters, since matplotlib is not installed.  For the picture, without measuring again:\n"
              f"  .venv/bin/python -m pip install matplotlib\n"
              f"  .venv/bin/python {Path(__file__).parent.relative_to(ROOT)}/run.py --from {figures} --plot {picture}")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(N_RANKS), figsize=(12, 5), sharey=True, layout="constrained")
    for axes, n_ranks in zip(panels, N_RANKS):
        for one in all_series(run, n_ranks):
            axes.plot(list(one.points), list(one.points.values()), one.style, label=one.name, markersize=6,
                      markerfacecolor="none" if "Python" in one.name else None)
        axes.set(xscale="log", yscale="log", xlabel="size of a rank's array", title=f"{n_ranks} ranks on 2 cores")
        axes.set_xticks(ALLREDUCE_SIZES, SIZE_NAMES.values(), rotation=45)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("time of an Allreduce, us")
    panels[0].legend()
    figure.suptitle(f"Allreduce SUM of doubles, {run['about']['processor']}", fontsize=10)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture)
    print(f"\npicture: {picture}")


def print_chart(shown: Sequence[Series], n_ranks: int) -> None:
    """Both axes logarithmic.  A cell holds the letters of all that fall into it."""
    if not shown:
        return

    def row_of(us: float) -> int:
        return math.floor(math.log10(us) * ROWS_PER_DECADE)

    rows = [row_of(us) for one in shown for us in one.points.values()]
    print(f"\nAllreduce, {n_ranks} ranks, us over size: " + ", ".join(f"{one.letter} {one.name}" for one in shown))
    for row in range(max(rows), min(rows) - 1, -1):
        label = f"{10 ** (row // ROWS_PER_DECADE):g}" if row % ROWS_PER_DECADE == 0 else ""
        cells = ["".join(one.letter for one in shown if n in one.points and row_of(one.points[n]) == row)
                 for n in ALLREDUCE_SIZES]
        print((f"{label:>9} |" + "".join(cell.center(COLUMN) for cell in cells)).rstrip())
    print(" " * 10 + "+" + "-" * COLUMN * len(ALLREDUCE_SIZES))
    print(" " * 11 + "".join(SIZE_NAMES[n].center(COLUMN) for n in ALLREDUCE_SIZES).rstrip())
