"""`godwit checkpoint show DIR`: what is inside a checkpoint, and whether it is whole."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Optional, Sequence

from . import _native
from .show import lines

MOST_LENGTHS = 12  # lines, of different lengths of vectors


def _size(n_bytes: int) -> str:
    size, unit = float(n_bytes), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"


def _many(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _about(where: str, what: dict[str, Any]) -> list[tuple[str, str]]:
    lengths = sorted(what["lengths"], key=lambda entry: -entry["keys"])
    rows = [("checkpoint", where), ("saved", f"{what['created']} by Godwit {what['godwit']}"),
            ("by", f"{_many(what['ranks'], 'rank')} on {_many(what['nodes'], 'node')}"),
            ("keys", f"{what['num_keys']:,}"), ("dtype", what["dtype"])]
    for number, entry in enumerate(lengths[:MOST_LENGTHS]):
        text = f"{entry['length']:,}"
        rows.append(("lengths" if number == 0 else "", text if len(lengths) == 1 else f"{text} of {_many(entry['keys'], 'key')}"))
    if len(lengths) > MOST_LENGTHS:
        rows.append(("", f"and {_many(len(lengths) - MOST_LENGTHS, 'other length')}"))
    rows.append(("size", _size(sum(part["bytes"] for part in what["parts"]))))
    meta = [(name, json.dumps(value, ensure_ascii=False)) for name, value in what["meta"].items()]
    widest = max((len(name) for name, _ in meta), default=0)
    for number, (name, value) in enumerate(meta or [("none", "")]):
        rows.append(("meta" if number == 0 else "", f"{name.ljust(widest)}  {value}".rstrip()))
    return rows


def _state(problem: Optional[str]) -> str:
    if problem is None:
        return "ok"
    return next((word for word in ("truncated", "damaged", "No such file") if word in problem), "wrong").replace(
        "No such file", "missing")


def page(where: str, what: dict[str, Any], problems: Optional[Sequence[Optional[str]]]) -> list[str]:
    """What `godwit checkpoint show` prints, line by line."""
    head = ("part", "rank", "node", "keys", "bytes", "crc32c", "state")
    states = ["not checked"] * len(what["parts"]) if problems is None else [_state(problem) for problem in problems]
    rows = [(part["file"], str(part["rank"]), str(part["node"]), f"{part['keys']:,}", f"{part['bytes']:,}", part["crc32c"], state)
            for part, state in zip(what["parts"], states)]
    text = lines(_about(where, what), (False, False))
    text += ["", *lines([head, *rows], (False, True, True, True, True, False, False)), ""]
    wrong = [problem for problem in problems or () if problem is not None]
    if problems is None:
        text.append("The parts were not read.")
    elif wrong:
        text += [*wrong, "", f"It cannot be loaded: {len(wrong)} of {_many(len(rows), 'part')} {'is' if len(wrong) == 1 else 'are'} not as saved."]
    else:
        text.append("All parts are as they were saved." if len(rows) != 1 else "Its part is as it was saved.")
    return text


def show(directory: str, check: bool = True) -> int:
    """Print it; the exit code is 0 if it can be loaded, as far as that was looked at."""
    try:
        what, problems = _native.checkpoint(directory, check)
    except _native.Error as error:
        print(f"godwit checkpoint: {error}", file=sys.stderr)
        return 1
    try:
        print(*page(os.path.abspath(directory), what, problems), sep="\n", flush=True)
    except BrokenPipeError:  # `godwit checkpoint show dir | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if any(problem is not None for problem in problems or ()) else 0
