"""tools/report.py: what a benchmark printed takes the place of what was there."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
pytest.importorskip("torch")
import report  # noqa: E402


def test_a_block_is_replaced_and_the_text_around_it_stays():
    page = "# Title\n\n<!-- make report: a -->\n<!-- end -->\nbetween\n<!-- make report: b -->\nold\n<!-- end -->\nafter\n"
    once = report.put(report.put(page, "a", "one"), "b", "two")
    assert once == ("# Title\n\n<!-- make report: a -->\n```\none\n```\n<!-- end -->\nbetween\n"
                    "<!-- make report: b -->\n```\ntwo\n```\n<!-- end -->\nafter\n")
    assert report.put(once, "b", "two") == once
    assert report.put("# Title\n", "new", "x").endswith("## `bench/new`\n\n<!-- make report: new -->\n```\nx\n```\n<!-- end -->\n")


def test_marks_without_an_end_are_refused():
    with pytest.raises(SystemExit, match="has no"):
        report.put("<!-- make report: a -->\n", "a", "one")


def test_the_machine_is_described():
    assert "PyTorch" in report.machine() and "cores" in report.machine()
