"""Numbers as people read them."""

from __future__ import annotations


def count(number: float) -> str:
    """1,234 as it is; from 100,000 on with three digits: 123 k, 4.56 M."""
    for limit, unit, scale in ((1e5, "", 1.0), (1e6, " k", 1e3), (1e9, " M", 1e6), (1e12, " G", 1e9)):
        if abs(number) < limit:
            break
    else:
        unit, scale = " T", 1e12
    if not unit:
        return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"
    return _three_digits(number / scale) + unit


def _three_digits(number: float) -> str:
    return f"{number:.0f}" if number >= 99.95 else f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def size(n_bytes: float) -> str:
    """Bytes, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(n_bytes) < 999.5:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{_three_digits(n_bytes)} {unit}"
        n_bytes /= 1000
    return f"{_three_digits(n_bytes)} TB"


def span(seconds: float) -> str:
    """How long something takes."""
    if seconds < 999.5e-9:
        return f"{seconds * 1e9:.0f} ns"
    for scale, unit in ((1e-6, "us"), (1e-3, "ms")):
        if seconds < 999.5 * scale:
            return f"{_three_digits(seconds / scale)} {unit}"
    if seconds < 120:
        return f"{_three_digits(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def share(part: float) -> str:
    """A part of 1, as percent; 100 % only if it is all."""
    percent = 100 * part
    if 99.95 <= percent < 100:
        percent = 99.9
    return f"{percent:.1f} %"
