"""apps/mf at toy size: both modes come near the noise, it stops when it is told to, and goes on after a kill, elsewhere."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest
from processes import BIN, run
from programs import module_of, until_signalled

pytest.importorskip("torch")

MF = Path(__file__).resolve().parents[2] / "apps" / "mf"
SMALL = ["--generate", "--users", "300", "--items", "150", "--n", "22000", "--rank", "2", "--batch", "256",
         "--lr", "0.2"]


def test_both_modes_come_near_the_noise_on_nodes_of_their_own(tmp_path, leaves_nothing):
    done = run(BIN / "godwit", "run", "-n", "2", "--node-size", "1", MF, *SMALL, "--epochs", "8", "--compare", "--output", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    table = done.stdout.partition("medians of the epochs")[2]
    for way, local in {"blocks": 99.9, "intent": 90, "nothing announced": 0}.items():
        found = re.search(rf"{way} +\S+ +(\S+)% .* (\S+)%", table)
        assert float(found[1]) >= local
        assert float(found[2]) < 6, table       # 450 x 3 numbers out of 19,800 ratings: 3.5 % at best
    history = json.loads((tmp_path / "blocks" / "history.json").read_text())
    assert history[-1]["copies"] == 0 and history[-1]["moved"] == 300  # in each turn 75 items go to each node


def test_a_killed_job_goes_on_with_one_process(tmp_path, leaves_nothing):
    options = [*SMALL, "--save-every", "1", "--output", tmp_path]
    command = [BIN / "godwit", "run", "-n", "2", MF, *options, "--epochs", "100000"]
    text, code = until_signalled(command, 3, signal.SIGKILL, rank=1)
    assert code != 0 and "rank 1" in text, text
    reached = len(json.loads((tmp_path / "history.json").read_text()))
    assert reached >= 2
    done = run(sys.executable, MF, *options, "--epochs", str(reached + 2), "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"going on after epoch (\d+)", done.stdout)[1] in (str(reached), str(reached + 1))
    history = json.loads((tmp_path / "history.json").read_text())
    assert [epoch["epoch"] for epoch in history] == list(range(1, reached + 3))
    assert history[-1]["rmse"] < history[0]["rmse"]


def test_ctrl_c_ends_the_turns_of_blocks_on_all_ranks(tmp_path, leaves_nothing):
    command = [BIN / "godwit", "run", "-n", "2", MF, *SMALL, "--mode", "blocks", "--output", tmp_path, "--epochs", "100000"]
    text, _ = until_signalled(command, 2, signal.SIGINT, rank=None)
    assert "what is trained is in" in text and "Traceback" not in text, text


def test_ratings_are_read_with_names_and_time_stamps(tmp_path):
    with module_of(MF, "ratings") as ratings:
        (tmp_path / "a.txt").write_text("ann\tmoon 4.5\n\nbob  sun  1 881250949\nann sun -2e0\n")
        (tmp_path / "b.txt").write_text("carl moon 3\n")
        found = ratings.read(tmp_path / "a.txt", tmp_path / "b.txt", 0.5, 0)
        assert (found.n_users, found.n_items) == (3, 2)
        assert found.train.users.tolist() == [0, 1, 0] and found.train.items.tolist() == [0, 1, 1]
        assert found.train.values.tolist() == [4.5, 1, -2] and found.test.users.tolist() == [2]
        halves = ratings.read(tmp_path / "a.txt", None, 0.3, 0)
        assert (len(halves.train), len(halves.test)) == (2, 1)


@pytest.mark.parametrize("text, complaint", [
    ("a b 3\na b\n", "line 2: 2 columns"), ("a b c d e\n", "line 1: 5 columns"), ("a b good\n", "line 1: the rating is 'good'"),
    ("a b nan\n", "line 1: the rating is 'nan'"), ("\n", "no ratings"), ("a b 3\n", "one rating"), (None, "No such file")])
def test_what_is_wrong_with_a_file_is_told(text, complaint, tmp_path):
    if text is not None:
        (tmp_path / "ratings.txt").write_text(text)
    with module_of(MF, "ratings") as ratings, pytest.raises(SystemExit, match=complaint):
        ratings.read(tmp_path / "ratings.txt", None, 0.1, 0)


def test_more_made_up_ratings_than_pairs_are_refused_by_their_option(tmp_path):
    done = run(sys.executable, MF, "--generate", "--users", "10", "--items", "10", "--n", "51", "--output", tmp_path)
    assert done.returncode != 0 and "--n 51: of 10 users and 10 items" in done.stderr
