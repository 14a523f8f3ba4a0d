"""apps/kge at toy size: it learns what follows from the rules, stops when it is told to, and goes on elsewhere."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import BIN, run
from programs import until_signalled

pytest.importorskip("torch")

KGE = Path(__file__).resolve().parents[2] / "apps" / "kge"
SMALL = ["--generate", "--entities", "120", "--dim", "32", "--batch", "64", "--evaluate-every", "4"]


def result(done: subprocess.CompletedProcess[str], part: str) -> float:
    assert done.returncode == 0, done.stdout + done.stderr
    return float(re.search(rf"{part} +(\S+)", done.stdout)[1])


def command(*words) -> list:
    return [BIN / "godwit", "run", "-n", "2", KGE, *SMALL, *words, "--epochs", "100000"]


def test_killed_in_an_epoch_it_goes_on_with_fewer_processes(tmp_path, leaves_nothing):
    options = ["--one-vs-all", "--reciprocal", "--output", tmp_path, "--save-every", "2"]
    said, code = until_signalled(command(*options), 3, signal.SIGKILL, rank=1)
    assert code != 0 and "died" in said, said
    saved = json.loads((tmp_path / "history.json").read_text())[-1]["epoch"]
    assert saved >= 2
    done = run(sys.executable, KGE, *SMALL, *options, "--epochs", str(saved + 12), "--resume", timeout=100)
    assert f"going on after epoch {saved}" in done.stdout
    assert result(done, "test") > 0.5
    history = json.loads((tmp_path / "history.json").read_text())
    assert [epoch["epoch"] for epoch in history] == list(range(1, saved + 13))


@pytest.mark.parametrize("more", [["--model", "rotate", "--adversarial", "1", "--negatives-by", "degree"],
                                  ["--model", "transe", "--negatives", "0", "--optimizer", "adam", "--lr", "0.01"]])
def test_models_and_losses_on_nodes_of_their_own(more, tmp_path, leaves_nothing):
    done = run(BIN / "godwit", "run", "-n", "2", "--node-size", "1", KGE, *SMALL, *more, "--epochs", "3", "--output",
               tmp_path, timeout=100)
    assert 0 < result(done, "test") <= 1
    losses = [epoch["loss"] for epoch in json.loads((tmp_path / "history.json").read_text())]
    assert losses[-1] < losses[0]


def test_ctrl_c_leaves_a_checkpoint_and_no_error(tmp_path, leaves_nothing):
    text, _ = until_signalled(command("--output", tmp_path), 2, signal.SIGINT, rank=None)
    assert "what is trained is in" in text and "Traceback" not in text, text
    assert (tmp_path / "checkpoint" / "checkpoint.json").exists()


def test_a_file_with_another_number_of_columns_is_named(tmp_path):
    for part in ("train", "valid", "test"):
        (tmp_path / f"{part}.txt").write_text("a\tlikes\tb\nb\tlikes\n" if part == "valid" else "a\tlikes\tb\n")
    done = run(sys.executable, KGE, "--dataset", tmp_path)
    assert done.returncode != 0 and "valid.txt, line 2: 2 columns between tabs, not 3" in done.stderr
