"""apps/word2vec at toy size: it finds planted analogies wherever words are, goes on after a kill, and its files are word2vec's."""

from __future__ import annotations

import ctypes
import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import BIN, job_environment, run
from programs import until_signalled

APP = Path(__file__).resolve().parents[2] / "apps" / "word2vec"
TOY = ["--generate", "--words", "200000", "--vocabulary", "2000", "--rate", "0.05", "--dim", "50", "--block", "128"]


@pytest.fixture
def plain(tmp_path) -> dict[str, str]:
    """An environment in which no picture is drawn: to import matplotlib takes longer than to train."""
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "matplotlib.py").write_text("raise ImportError")
    return {"PYTHONPATH": str(tmp_path / "without")}


def analogies(done: subprocess.CompletedProcess[str], directory: Path) -> float:
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((directory / "history.json").read_text())[-1]["analogies"]


@pytest.mark.parametrize("n, nodes", [(1, []), (2, []), (4, ["--node-size", "1"])])
def test_planted_analogies_are_found(n, nodes, tmp_path, plain, leaves_nothing):
    done = run(BIN / "godwit", "run", "-n", str(n), *nodes, APP, *TOY, "--epochs", "8", "--evaluate-every", "8",
               "--save-every", "8", "--output", tmp_path, timeout=100, **plain)
    assert analogies(done, tmp_path) >= 0.9
    local = json.loads((tmp_path / "history.json").read_text())[-1]["local"]
    assert local == 1 if not nodes else local > 0.8


def test_a_job_that_was_killed_goes_on_with_another_number_of_processes(tmp_path, plain, leaves_nothing):
    command = [BIN / "godwit", "run", "-n", "2", APP, *TOY, "--epochs", "1000", "--output", tmp_path]
    job = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           env=job_environment())
    for line in job.stdout:
        if re.match(r"\[0\] +2 ", line):
            break
    job.kill()
    job.communicate()
    for _ in range(100):  # its ranks end with it, and let go of the directory
        last = json.loads((tmp_path / "checkpoint" / "checkpoint.json").read_text())["meta"]["epoch"]
        done = run(sys.executable, APP, *TOY, "--epochs", str(last + 6), "--resume", "--output", tmp_path, timeout=100,
                   **plain)
        if "another job saves into" not in done.stderr:
            break
        time.sleep(0.1)
    assert analogies(done, tmp_path) >= 0.9
    first = int(re.search(r"going on after epoch (\d+)", done.stdout)[1])
    assert first >= 1
    assert [epoch["epoch"] for epoch in json.loads((tmp_path / "history.json").read_text())] == list(range(1, first + 7))


def test_files_of_both_formats_hold_the_same_and_answer_questions(tmp_path):
    chance, topics = random.Random(1), [[f"{topic}{i}é" for i in range(20)] for topic in ("sea", "sky")]
    text = tmp_path / "text.txt"
    text.write_text("".join(" ".join(chance.choices(topics[i % 2], k=12)) + "\n" for i in range(3000)), encoding="utf-8")
    done = run(sys.executable, APP, "--text", text, "--dim", "10", "--sample", "0", "--epochs", "4", "--rate", "0.1", "--output",
               tmp_path, "--nearest", "sea3é")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "vectors.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "40 10" and {line.split()[0] for line in lines[1:]} == {*topics[0], *topics[1]}
    found = {}
    data = (tmp_path / "vectors.bin").read_bytes()
    head, data = data.split(b"\n", 1)
    for _ in range(int(head.split()[0])):
        word, data = data.split(b" ", 1)
        found[word.decode()] = list((ctypes.c_float * 10).from_buffer_copy(data[:40]))
        assert data[40:41] == b"\n"
        data = data[41:]
    assert data == b"" and {line.split()[0]: [float(x) for x in line.split()[1:]] for line in lines[1:]} == {
        word: [pytest.approx(x, rel=1e-8) for x in row] for word, row in found.items()}
    for name in ("vectors.txt", "vectors.bin"):
        again = run(sys.executable, APP, "--vectors", tmp_path / name, "--nearest", "sea3é")
        assert again.returncode == 0 and again.stdout == done.stdout[done.stdout.index("\nsea3é "):done.stdout.index("picture:")]
        near = [line.split()[0] for line in again.stdout.splitlines()[2:]]
        assert len(near) == 10 and set(near) <= set(topics[0])


@pytest.mark.parametrize("write, more, says", [
    (b"", [], "is not a file with text in it"),
    (b"one two three\n", [], "has 0 different words that occur 5 times or more"),
    (None, [], "cannot read"),
    (b"a b c d\n" * 20, ["--window", "100"], "a window of 100 words: from 1 to 32"),
    (b"a b c d\n" * 20, ["--analogies", "questions.txt"], "questions.txt, line 2: not four words"),
])
def test_what_cannot_be_used_is_named(write, more, says, tmp_path):
    text, questions = tmp_path / "text.txt", tmp_path / "questions.txt"
    questions.write_text("a b c d\na b c\n")
    if write is not None:
        text.write_bytes(write)
    more = [questions if word == questions.name else word for word in more]
    done = run(sys.executable, APP, "--text", text, "--output", tmp_path / "out", *more)
    assert done.returncode == 1 and says in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("name, data", [("cut.bin", b"2 2\na " + b"\0" * 8 + b"\nb " + b"\0" * 7), ("cut.txt", b"2 2\na 1 2\nb 1\n"),
                                        ("more.txt", b"1 2\na 1 2 3\n"), ("twice.txt", b"2 1\na 1\na 2\n"), ("none.txt", b"x\n"),
                                        ("huge.bin", b"9999999999999 9999999\n"), ("word.txt", b"1 1\nb 1\n")])
def test_damaged_vectors_are_refused(name, data, tmp_path):
    (tmp_path / name).write_bytes(data)
    done = run(sys.executable, APP, "--vectors", tmp_path / name, "--nearest", "a")
    assert done.returncode == 1 and done.stderr.startswith("word2vec: ") and "Traceback" not in done.stderr, done.stderr


def test_without_a_compiler_it_says_what_to_install(tmp_path):
    done = run(sys.executable, APP, "--generate", "--output", tmp_path, CC="no-such-compiler")
    assert done.returncode == 1 and "there is no 'no-such-compiler'" in done.stderr and "apt-get install" in done.stderr


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    done = run(sys.executable, APP, "--generate", "--output", tmp_path, XDG_CACHE_HOME=str(tmp_path / "file"))
    assert done.returncode == 1 and "XDG_CACHE_HOME" in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_checkpoint_of_another_text_is_refused(tmp_path, plain):
    for words in ("a b c d", "a b c e"):
        (tmp_path / "text.txt").write_text(f"{words}\n" * 20)
        done = run(sys.executable, APP, "--text", tmp_path / "text.txt", "--epochs", "1", "--output", tmp_path / "out",
                   *(["--resume"] if "e" in words else []), **plain)
    assert done.returncode == 1 and "is of another text" in done.stderr, done.stderr


def test_ctrl_c_leaves_a_checkpoint_and_no_error(tmp_path, plain, leaves_nothing):
    command = [BIN / "godwit", "run", "-n", "2", "--node-size", "1", APP, *TOY, "--epochs", "100000", "--output", tmp_path]
    text, code = until_signalled(command, 1, signal.SIGINT, rank=None, **plain)
    assert code in (0, 130), text
    assert "what is trained is in" in text and "Traceback" not in text, text
