"""Shares of the best loop over lengths: a picture by matplotlib, or bars in letters where that is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from programs import HERE, ROOT
from report import CACHE_KEYS, LOOPS, SHARE_TARGETS, TORCH, Spread, best_loop, over

WIDTH = 50  # of a bar of 100 %

Bar = tuple[str, Spread, float | None]  # what, share of the best loop, target


def bars(run: dict[str, Any], call: str) -> list[Bar]:
    """The store and PyTorch as shares of the best loop; uniform keys, huge pages."""
    found: list[Bar] = []
    for case in run["speed"]:
        if case["pages"] == "huge" and case["n_keys"] != CACHE_KEYS:
            rounds = case["rounds"]["uniform"]
            loop = best_loop(rounds, call)
            for kind, target in ((call, SHARE_TARGETS[call][case["length"]]), (TORCH[call], None)):
                share = over(rounds, lambda one: one[loop] / one[kind])
                found.append((f"{kind}, {case['length']}", share, target))
    return found


def draw(run: dict[str, Any], picture: Path, figures: Path) -> None:
    if not run["speed"]:
        return
    try:
        import matplotlib
    except ImportError:
        for call in LOOPS:
            print_bars(bars(run, call), call)
        print("\nBars in letters, since matplotlib is not installed.  For the picture, without measuring again:\n"
              "  .venv/bin/python -m pip install matplotlib\n"
              f"  .venv/bin/python {HERE.relative_to(ROOT)}/run.py --from {figures} --plot {picture}")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(LOOPS), figsize=(12, 4), sharex=True, layout="constrained")
    for axes, call in zip(panels, LOOPS):
        shown = bars(run, call)[::-1]
        axes.barh([what for what, _, _ in shown], [share.median for _, share, _ in shown],
                  xerr=[[share.median - share.lower for _, share, _ in shown],
                        [share.upper - share.median for _, share, _ in shown]],
                  color=["C0" if target is not None else "C7" for _, _, target in shown])
        for row, (_, _, target) in enumerate(shown):
            if target is not None:
                axes.plot([target, target], [row - 0.4, row + 0.4], "k-")
        axes.axvline(1, color="C1", label=f"best {LOOPS[call]} loop")
        axes.set(xlabel="share of the best loop's speed", title=call)
        axes.legend()
    figure.suptitle(f"Uniform keys, huge pages, one worker, {run['about']['processor']}; lines: targets", fontsize=10)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture)
    print(f"\npicture: {picture}")


def print_bars(shown: list[Bar], call: str) -> None:
    print(f"\n{call}, uniform keys, huge pages: % of the speed of the best {LOOPS[call]} loop; | is the target")
    for what, share, target in shown:
        bar = "#" * round(share.median * WIDTH)
        if target is not None:
            at = round(target * WIDTH)
            bar = bar.ljust(at + 1)
            bar = bar[:at] + "|" + bar[at + 1:]
        print(f"  {what:<18} {100 * share.median:4.0f} {bar.rstrip()}")
