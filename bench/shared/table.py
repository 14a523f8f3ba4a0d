"""Tables of figures with their spread, targets and verdicts; and the end of a run that has them."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def short(value: float) -> str:
    """Three digits that count, and no exponent."""
    digits = 3 if abs(value) < 0.1 else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}"


@dataclasses.dataclass
class Table:
    """`rows` hold strings, spreads (dataclasses that know their text) and Nones, as `head` says.  A column of
    verdicts (pass, miss, unclear, not measured, or nothing) follows the target that it is about."""
    title: str
    head: Sequence[str]
    rows: list[list[Any]] = dataclasses.field(default_factory=list)
    notes: Sequence[str] = ()

    def print(self) -> None:
        if not self.rows:
            return
        lines = [list(self.head), *([("-" if cell is None else str(cell)) for cell in row] for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.head))]
        print(f"\n{self.title}")
        for note in self.notes:
            print(f"  {note}")
        for line in lines:
            print(("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths))).rstrip())

    def as_dict(self) -> dict[str, Any]:
        return {"title": self.title, "notes": list(self.notes), "head": list(self.head),
                "rows": [[dataclasses.asdict(cell) if dataclasses.is_dataclass(cell) else cell for cell in row]
                         for row in self.rows]}


def count(tables: Sequence[Table]) -> tuple[int, int]:
    """Targets met, and those that were judged."""
    verdicts = [cell for table in tables for row in table.rows for head, cell in zip(table.head, row)
                if head == "verdict"]
    return verdicts.count("pass"), verdicts.count("pass") + verdicts.count("miss")


def conclude(run: dict[str, Any], tables: Sequence[Table], arguments: argparse.Namespace, draw: Any) -> int:
    """Print the tables, keep them with the figures unless those came from a file, draw, and judge: the exit code."""
    for table in tables:
        table.print()
    passed, judged = count(tables)
    kept: Path = arguments.json
    if not arguments.earlier:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps({**run, "tables": [table.as_dict() for table in tables]}, indent=1) + "\n")
    draw(run, arguments.plot, arguments.earlier or kept)
    print(f"\n{passed} of {judged} targets met")
    return 1 if arguments.strict and passed < judged else 0


def add_usual_arguments(parser: argparse.ArgumentParser, name: str, program: Path, rounds: int) -> None:
    """Those of a run.py that starts `program`, which meson built, and draws no picture."""
    parser.add_argument("--godwit", type=Path, default=program, metavar="PROGRAM", help=f"{name} as meson built it")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"how often everything is measured ({rounds})")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a target is missed")
    kept = Path(f"build/bench-{name}.json")
    parser.add_argument("--json", type=Path, metavar="FILE", default=program.parents[3] / kept,
                        help=f"where every figure of every round goes ({kept})")
    parser.add_argument("--from", type=Path, metavar="FILE", dest="earlier",
                        help="measure nothing: show an earlier run's --json again")
    parser.set_defaults(plot=None)


def check_usual_arguments(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    arguments.godwit = arguments.godwit.resolve()
    if not arguments.earlier and not arguments.godwit.exists():
        parser.error(f"there is no {arguments.godwit}; configure with -Dbench=true")


def draw_nothing(run: dict[str, Any], picture: Path | None, figures: Path) -> None:
    print(f"\nfigures: {figures}")
