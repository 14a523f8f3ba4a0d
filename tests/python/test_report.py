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


def test_a_picture_is_shown_below_its_block(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    (tmp_path / "bench-a.svg").write_text("<svg/>")
    page = report.put("<!-- make report: a -->\n<!-- end -->\n", "a", "one")
    assert page == "<!-- make report: a -->\n```\none\n```\n\n![what bench/a measured](bench-a.svg)\n<!-- end -->\n"
    assert report.put(page, "a", "one") == page


def test_what_failed_leaves_the_page_as_it_was(tmp_path, monkeypatch):
    (tmp_path / "tools").mkdir()
    bench = tmp_path / "tools/bench.sh"
    bench.write_text("#!/bin/sh\necho; echo '=== a'; echo; echo Traceback; exit 1\n")
    bench.chmod(0o755)
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "KEPT", tmp_path / "kept")
    with pytest.raises(SystemExit, match="bench/a ended with 1"):
        report.run("a")
    assert not (tmp_path / "kept").exists()
    bench.write_text("#!/bin/sh\necho; echo '=== a'; echo; echo one; echo \"picture: $PWD/a.svg\"; echo; echo two\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    (tmp_path / "a.svg").write_text("<svg/>")
    assert report.run("a") == "one\ntwo" and (tmp_path / "bench-a.svg").read_text() == "<svg/>"


def test_marks_without_an_end_are_refused():
    with pytest.raises(SystemExit, match="has no"):
        report.put("<!-- make report: a -->\n", "a", "one")


def test_the_machine_is_described():
    assert "PyTorch" in report.machine() and "cores" in report.machine()
