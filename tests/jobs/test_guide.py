"""The programs in the guide and in the README do what the text shows.

A block of Python whose first line is a comment with a command is a program. It is run by that command; what the
next block shows, if that has no language, is what it prints, in any order of the ranks.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import BIN, run
from test_mpi import LAUNCHERS, mpi4py_path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"# ((?:godwit run|mpirun) .*)\n")


@dataclass(frozen=True)
class Example:
    page: str
    command: tuple[str, ...]
    text: str
    output: str

    @property
    def name(self) -> str:
        return next(word for word in self.command if word.endswith(".py"))


def examples(page: str) -> list[Example]:
    blocks = BLOCK.findall((ROOT / page).read_text())
    found = []
    for (language, text), (next_language, shown) in zip(blocks, [*blocks[1:], ("", "")]):
        command = COMMAND.match(text) if language == "python" else None
        if command is not None:
            output = shown if next_language == "" else ""
            found.append(Example(page, tuple(shlex.split(command[1])), text, output))
    return found


PAGES = ("docs/comm.md", "docs/params.md", "docs/memory.md", "docs/inside.md", "docs/backend.md", "README.md")
FOUND = {page: examples(page) for page in PAGES}
ALL = list({(example.text, example.output): example for page in reversed(PAGES) for example in FOUND[page]}.values())  # what is on both pages, once
EXAMPLES = [example for example in ALL if example.command[0] == "godwit"]
MPI_EXAMPLES = [example for example in ALL if example.command[0] == "mpirun"]


def names(chosen: list[Example]) -> list[str]:
    return [f"{Path(example.page).stem}-{example.name}" for example in chosen]


def assert_as_shown(example: Example, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    if example.output:
        shown = [line for line in example.output.splitlines() if not line.startswith("$ ")]
        assert sorted(done.stdout.splitlines()) == sorted(shown)
        assert done.stderr == ""


def test_the_pages_have_programs():
    """Not one block of Python is there only to be looked at, except the README's first program, which other tests run, and
    what is quoted from a file in apps/, word by word."""
    quoted = "".join(path.read_text() for path in (ROOT / "apps").rglob("*.py"))
    untested = [text for page in PAGES
                for language, text in BLOCK.findall((ROOT / page).read_text())
                if language == "python" and COMMAND.match(text) is None and text.strip() not in quoted]
    assert [text.partition("\n")[0] for text in untested] == ["# hello.py"]
    assert [len(FOUND[page]) > least for page, least in zip(PAGES, (8, 4, 1))] == [True] * 3


@pytest.mark.parametrize("example", EXAMPLES, ids=names(EXAMPLES))
def test_a_program_does_what_is_shown(example, program):
    path = program(example.text, example.name)
    command = [str(path) if word == example.name else word for word in example.command[1:]]
    assert_as_shown(example, run(BIN / "godwit", *command))


@pytest.mark.parametrize("mpi", LAUNCHERS)
@pytest.mark.parametrize("example", MPI_EXAMPLES, ids=names(MPI_EXAMPLES))
def test_a_program_for_mpirun_does_what_is_shown(example, mpi, program):
    if shutil.which(LAUNCHERS[mpi][0]) is None:
        pytest.skip(f"{mpi} is not installed")
    words = {example.name: str(program(example.text, example.name)), "python": sys.executable}
    command = [words.get(word, word) for word in example.command[1:]]
    assert_as_shown(example, run(*LAUNCHERS[mpi], *command, PYTHONPATH=mpi4py_path(mpi), PYTHONUNBUFFERED=""))
