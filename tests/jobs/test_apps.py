"""The programs in apps/ with small settings, alone and as ranks: they say that they found what they were to find."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from processes import BIN, run

APPS = Path(__file__).resolve().parents[2] / "apps"
START = {1: [sys.executable], 3: [BIN / "godwit", "run", "-n", "3"]}


@pytest.mark.parametrize("n", START)
def test_regression_finds_the_parameters_and_all_ranks_have_the_same(n, leaves_nothing):
    done = run(*START[n], APPS / "regression.py", "--points", "5000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Found; and the parameters of {n} rank(s) are the same, bit by bit." in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("n", START)
def test_heat_has_the_gradient_of_one_process_and_recovers_the_first_state(n, tmp_path, leaves_nothing):
    picture = tmp_path / "heat.svg"
    done = run(*START[n], APPS / "heat.py", "--cells", "50", "--steps", "10", "--iterations", "20", "--output", picture)
    assert done.returncode == 0, done.stdout + done.stderr
    assert float(re.search(r"whole rod, differ by (\S+) at most", done.stdout)[1]) < 1e-12
    last, recovered = re.search(r"is (\S+) % off the first one, the recovered one (\S+) %", done.stdout).groups()
    assert float(recovered) < float(last) / 2
    assert picture.exists() or "o true,  . last,  x recovered" in done.stdout


@pytest.mark.parametrize("n, nodes", [(1, []), (4, ["--node-size", "2"])])
def test_graphsage_learns_communities_that_features_hardly_tell_apart(n, nodes, leaves_nothing):
    done = run(BIN / "godwit", "run", "-n", str(n), *nodes, APPS / "graphsage.py", "--generate", "3000", "--steps", "20",
               "--batch", "100", "--fanout", "8", "--eval-fanout", "10", "--lr", "0.02", "--dropout", "0.2", timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step   20/20" in done.stdout and "nodes/s" in done.stdout
    assert float(re.search(r"test accuracy (\S+)", done.stdout)[1]) > 0.4  # by chance: 0.06
