"""What the tests with several processes share."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import assert_no_more_than, traces


@pytest.fixture
def leaves_nothing():
    """The test may not leave more behind than there was before."""
    before = traces()
    yield
    assert_no_more_than(before)


@pytest.fixture
def program(tmp_path):
    """Write a program and return its path."""
    def write(text: str, name: str = "program.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path
    return write
