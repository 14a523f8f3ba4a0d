"""apps/ctr at toy size: as good as plain PyTorch, also on nodes of their own; it goes on after a kill, elsewhere."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import BIN, run
from programs import module_of, until_signalled

torch = pytest.importorskip("torch")

CTR = Path(__file__).resolve().parents[2] / "apps" / "ctr"
SMALL = ["--generate", "--n", "12000", "--values", "40", "--rows", "3000", "--dim", "4", "--batch", "256"]


def area(done: subprocess.CompletedProcess[str]) -> float:
    assert done.returncode == 0, done.stdout + done.stderr
    return float(re.search(r"test AUC (\S+)", done.stdout)[1])


def test_as_good_as_plain_pytorch_and_on_after_a_kill_with_one_process(tmp_path, leaves_nothing):
    """Two processes on nodes of their own train one epoch; one is killed in the next; one process alone goes on."""
    options = [*SMALL, "--output", tmp_path]
    command = [BIN / "godwit", "run", "-n", "2", "--node-size", "1", CTR, *options]
    text, code = until_signalled([*command, "--epochs", "100000"], 2, signal.SIGKILL, rank=1)
    assert code != 0 and "rank 1" in text, text
    reached = len(json.loads((tmp_path / "history.json").read_text()))
    done = run(sys.executable, CTR, *options, "--epochs", str(reached + 2), "--resume")
    assert "going on after epoch" in done.stdout
    plain = run(sys.executable, CTR, *options, "--epochs", str(reached + 2), "--reference")
    assert abs(area(done) - area(plain)) < 0.01, done.stdout + plain.stdout
    history = json.loads((tmp_path / "history.json").read_text())
    assert [epoch["epoch"] for epoch in history] == list(range(1, reached + 3))
    assert history[0]["local"] > 0.8 and history[0]["copies"] > 0
    assert history[-1]["auc"] > 0.7 and history[-1]["loss"] < history[0]["loss"]


def test_ctrl_c_ends_all_ranks_after_the_same_batch(tmp_path, leaves_nothing):
    command = [BIN / "godwit", "run", "-n", "2", CTR, *SMALL, "--model", "dlrm", "--optimizer", "adam", "--lr", "0.001", "--output",
               tmp_path, "--epochs", "100000"]
    text, code = until_signalled(command, 1, signal.SIGINT, rank=None)
    assert "what is trained is in" in text and "Traceback" not in text, text


def test_area_is_exact_with_ties():
    with module_of(CTR, "measure") as measure:
        chance = torch.Generator().manual_seed(3)
        for n_scores in (1, 3, 1000):
            scores = torch.randint(n_scores, (200,), generator=chance).float()
            labels = (torch.rand(200, generator=chance) < 0.3).float()
            clicked, other = scores[labels == 1], scores[labels == 0]
            better, equal = (clicked[:, None] > other).sum(), (clicked[:, None] == other).sum()
            assert measure.auc(scores, labels) == pytest.approx(
                (better.item() + equal.item() / 2) / (len(clicked) * len(other)), abs=1e-12)


def line(label="1", numbers=("5",) * 13, categories=("68fd1e64",) * 26) -> str:
    return "\t".join([label, *numbers, *categories]) + "\n"


def test_criteos_files_are_read_each_rank_its_lines(tmp_path):
    path = tmp_path / "clicks.txt"
    path.write_text(line() + line("0", ("", "-1", *["0"] * 11), ("", *["68fd1e64"] * 25)) + line() + line("0"))
    with module_of(CTR, "clicks") as clicks:
        whole = clicks.read(path, None, 1000, 0.25, 0, 1)
        assert whole.train.labels.tolist() == [1, 0, 1] and whole.test.labels.tolist() == [0]
        assert whole.train.numbers[0].tolist() == pytest.approx([1.791759] * 13) and not whole.train.numbers[1].any()
        rows = whole.train.rows
        assert torch.equal(rows[0], rows[2]) and torch.equal(rows[0, 1:], rows[1, 1:]) and rows[0, 0] != rows[1, 0]
        assert len(rows[0].unique()) > 20                # the same value in 26 fields
        halves = [clicks.read(path, path, 1000, 0.25, rank, 2) for rank in range(2)]
        assert torch.equal(halves[0].train.rows, rows[[0, 2]]) and halves[1].test.labels.tolist() == [0, 0]


@pytest.mark.parametrize("text, complaint", [
    (line() + "1\t2\n", "line 2: 2 columns"), (line() + line("2"), "line 2: the label is '2'"),
    (line(numbers=("x",) * 13) * 2, "line 1: columns 2 to 14"), (line(), "1 lines"), (None, "No such file")])
def test_what_is_wrong_with_a_file_is_told(text, complaint, tmp_path):
    if text is not None:
        (tmp_path / "clicks.txt").write_text(text)
    with module_of(CTR, "clicks") as clicks, pytest.raises(SystemExit, match=complaint):
        clicks.read(tmp_path / "clicks.txt", None, 100, 0.1, 0, 1)
