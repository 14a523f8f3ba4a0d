"""Derivatives of godwit.comm's functions, on every fabric, for one to four ranks; comm_derivatives.py says how."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from comm_fabrics import LAUNCHERS, run_job

pytest.importorskip("torch")

PROGRAM = Path(__file__).with_name("comm_derivatives.py")
RANKS = [1, 2, 3, 4]
# Largest error of first and second derivative: {function and type: {(fabric, ranks): (first, second)}}
table: dict[str, dict[tuple[str, int], tuple[float, float]]] = {}


@pytest.mark.parametrize("n", RANKS)
@pytest.mark.parametrize("fabric", LAUNCHERS)
def test_gradients_are_those_of_the_sum_of_all_losses(fabric, n):
    done = run_job(fabric, n, PROGRAM, COMM_ENTRIES="2" if fabric == "shm" and n < 3 else "1")
    found = re.findall(r"case\|(.*)\|(.*)\|(.*)\|(.*)\|(\w+)", done.stdout)
    for name, dtype, first, second, _ in found:
        table.setdefault(f"{name}, {dtype}", {})[fabric, n] = float(first), float(second)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert found and all(verdict == "ok" for *_, verdict in found)
    assert "UserWarning" not in done.stderr


def test_the_table_of_errors(capsys):
    """The larger error of the two derivatives, as a power of ten."""
    if not table:
        pytest.skip("no job ran before")
    columns = [(fabric, n) for fabric in LAUNCHERS for n in RANKS if any((fabric, n) in row for row in table.values())]
    with capsys.disabled():
        print(f"\n{'largest error':38s}" + "".join(f"{fabric + ' ' + str(n):>10s}" for fabric, n in columns))
        for name, row in table.items():
            cells = (f"{max(row[c]):.0e}" if c in row else "-" for c in columns)
            print(f"{name:38s}" + "".join(f"{cell:>10s}" for cell in cells))
    assert all(len(row) == len(columns) for row in table.values())
