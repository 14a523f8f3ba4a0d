"""Seeing inside real jobs: their traces, the pages made of these, and `godwit top`."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from processes import BIN, job_environment, run
from test_mpi import LAUNCHERS
from trace_check import problems

from godwit.inside import report, series
from godwit.inside.trace import read

PROGRAM = Path(__file__).with_name("inside_program.py")
GODWIT = BIN / "godwit"


def traced(path: Path, *argv: object, n: int, node_size: int, **environment: str) -> list[dict]:
    done = run(GODWIT, "run", "-n", n, "--node-size", node_size, PROGRAM, *argv, GODWIT_TRACE=str(path), **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())


def agents(events: list[dict], name: str) -> int:
    return sum(e["args"].get(name, 0) for e in events if e["ph"] == "X" and e["cat"] == "agent")


def check(events: list[dict], path: Path, n: int, nodes: int, keys: int, openings: int = 1) -> None:
    """What every trace of the program has."""
    assert problems(events) == []
    ranks = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {f"rank {r} (node {r * nodes // n})" for r in range(n)} | {f"node {k}" for k in range(nodes)} == set(ranks.values())
    threads = Counter(e["args"]["name"] for e in events if e["name"] == "thread_name")
    for opening in range(1, openings + 1):
        assert threads[f"agent of parameters {opening}"] == (n if nodes > 1 else 0)
        assert threads[f"worker 0 of parameters {opening}"] == n
    # All moves and replicas are in the spans: what one node gave, another has, but for what was on its way at the end.
    found = series.parameters(read([str(path)]))
    assert [kv.num_keys for kv in found] == [keys] * openings
    assert sum(kv.last("moves") for kv in found) == agents(events, "moved_in")
    assert agents(events, "moved_in") <= agents(events, "moved_out") <= agents(events, "moved_in") + keys // 20
    assert sum(kv.last("copied") for kv in found) == agents(events, "copied")
    assert sum(kv.last("dropped") for kv in found) == agents(events, "dropped") <= agents(events, "copied")
    if nodes > 1:
        assert agents(events, "moved_in") > keys / 10 and agents(events, "copied") > 10
    for kv in found:
        grid = kv.grid()
        at_the_end = [values[-1] for values in kv.owned(grid).values()]
        assert len(at_the_end) == nodes and 0.97 * keys <= sum(at_the_end) <= 1.03 * keys
        assert kv.last("accesses") > 1000 and (kv.last("remote") > 0) == (nodes > 1)
        assert max(max(v or 0 for v in line) for line in kv.clocks(grid).values()) > 3
    # Waits, with what for.
    causes = {cause.text: cause for cause in series.causes(read([str(path)]))}
    assert causes["the workers' barrier"].count >= 1
    assert nodes == 1 or causes["the end of a pull"].count > 1
    assert all(sum(cause.buckets) == cause.count for cause in causes.values())


@pytest.fixture(scope="module")
def a_trace(tmp_path_factory):
    """Of two nodes; the file was there before."""
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    path.write_text("what was there before")
    traced(path, 0.6, 4000, n=2, node_size=1)
    return path


def test_a_trace_of_all_ranks_is_in_one_file(a_trace):
    check(json.loads(a_trace.read_text()), a_trace, 2, 2, 4000)
    assert os.listdir(a_trace.parent) == ["trace.json"]


@pytest.mark.parametrize("n, node_size, openings", [(4, 1, 1), (4, 2, 2), (2, 2, 1)])
def test_a_trace_of_other_jobs(tmp_path, n, node_size, openings, leaves_nothing):
    path = tmp_path / "trace.json"
    events = traced(path, 0.6, 4000, 1, openings, n=n, node_size=node_size)
    check(events, path, n, n // node_size, 4000, openings)


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_a_trace_under_mpi(tmp_path, mpi):
    if shutil.which(LAUNCHERS[mpi][0]) is None:
        pytest.skip(f"{mpi} is not installed")
    path = tmp_path / "trace.json"
    done = run(*LAUNCHERS[mpi], "-n", 2, sys.executable, PROGRAM, 0.6, 4000, GODWIT_TRACE=str(path), GODWIT_NODE_SIZE="1")
    assert done.returncode == 0, done.stderr
    events = json.loads(path.read_text())
    assert events[0]["args"]["fabric"] == "mpi"
    check(events, path, 2, 2, 4000)


KILLED = """
import os, signal, sys, threading, time
import godwit, numpy
sys.argv = ["inside_program.py", "20", "4000"]
if godwit.init().rank == 1:
    threading.Timer(1, os.kill, (os.getpid(), signal.SIGKILL)).start()
exec(open({path!r}).read())
"""


def test_if_a_rank_is_killed_the_rest_can_be_read(tmp_path, program):
    path = tmp_path / "trace.json"
    done = run(GODWIT, "run", "-n", 3, "--node-size", 1, program(KILLED.format(path=str(PROGRAM))), GODWIT_TRACE=str(path))
    assert done.returncode != 0
    trace = read([str(path)])
    assert trace.damaged == 0
    assert {e["pid"] for e in trace.of("i", "figures")} == {1, 2, 3}
    last = {pid: max(e["ts"] for e in trace.events if e["pid"] == pid) for pid in (1, 2, 3)}
    first = min(e["ts"] for e in trace.events)
    assert min(last.values()) - first > 0.5e6
    assert "Which keys were where" in report.make(trace)
    # Cut anywhere, it can still be read.
    text = path.read_text()
    path.write_text(text[:len(text) * 2 // 3])
    cut = read([str(path)])
    assert not cut.is_whole and cut.damaged <= 1 and len(cut.events) > 100
    assert "The trace has no end" in report.make(cut)


@pytest.mark.parametrize("value, words", [("/no/such/folder/trace.json", "No such file"), ("{dir}", "Is a directory")])
def test_a_trace_that_cannot_be_written_is_refused_at_the_start(tmp_path, value, words):
    value = value.format(dir=tmp_path)
    done = run(sys.executable, "-c", "import godwit; godwit.init()", GODWIT_TRACE=value)
    assert done.returncode == 1
    assert f"GODWIT_TRACE is '{value}', which cannot be written: {words}" in done.stderr


def test_a_trace_that_cannot_be_finished_is_said(tmp_path, program):
    path = tmp_path / "trace.json"
    small = program("""
import resource, signal
import godwit
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
godwit.init()
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
godwit.Parameters(10, 1).close()
godwit.close()
print("fine")
""")
    done = run(sys.executable, small, GODWIT_TRACE=str(path))
    assert done.returncode == 0 and done.stdout == "fine\n"
    assert "RuntimeWarning: the trace of process 1 is not whole: its file cannot be written" in done.stderr


# ---- the page --------------------------------------------------------------------


class Page(HTMLParser):
    """Looks whether tags match and nothing is fetched from elsewhere; keeps what matters."""

    ALONE = {"meta", "br", "img", "input", "link"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: Counter[str] = Counter()
        self.titles: list[str] = []
        self.data: list[dict] = []
        self.fetched: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.counts[tag] += 1
        self.fetched += [value for name, value in attrs if name in ("src", "href", "xlink:href") and value]
        self.kind = dict(attrs).get("type", "")
        if tag not in self.ALONE:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.ALONE:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h3":
            self.titles.append(data)
        if self.open and self.open[-1] == "script" and self.kind == "application/json":
            self.data.append(json.loads(data))


def test_the_report_is_one_page_with_all_charts(tmp_path, a_trace):
    path = tmp_path / "trace.json"
    path.write_text(a_trace.read_text())
    done = run(GODWIT, "report", path)
    assert done.returncode == 0 and done.stdout == f"{tmp_path}/trace.html\n", done.stderr
    text = (tmp_path / "trace.html").read_text()
    page = Page(text)
    assert page.titles == ["Where the keys were", "Which keys were where", "Local share", "Keys read or changed", "Moves",
                           "Replicas here", "Replicas made and dropped", "Bytes sent, by cause", "Rounds", "Staleness", "Clocks",
                           "How long waits lasted", "What they were for", "Who waited when", "The longest waits"]
    assert page.counts["svg"] == 13 and len(page.data) == 12
    assert all(value.startswith("data:image/png;base64,") for value in page.fetched) and len(page.fetched) == 1
    assert not re.search(r"https?://|@import|url\(", text)
    assert not re.search(r"\b(nan|inf|None)\b", re.sub(r"base64,[^\"]*", "", text))
    for data in page.data:  # as many values as moments
        assert all(len(values) == len(data["at"]) for values in data.get("values", []))
        assert "cells" not in data or len(data["cells"]) == len(data["at"])


def test_a_report_of_something_else_is_refused(tmp_path):
    other = tmp_path / "other.json"
    other.write_text('[{"ph":"X","name":"a","pid":1,"tid":1,"ts":0,"dur":1}]')
    for path, words in ((other, "is not a trace of Godwit"), (tmp_path / "none", "No such file")):
        done = run(GODWIT, "report", path)
        assert done.returncode == 1 and words in done.stderr and str(path) in done.stderr
    assert os.listdir(tmp_path) == ["other.json"]


# ---- godwit top ------------------------------------------------------------------


@pytest.fixture
def job():
    """Start a job and wait until its parameters are open."""
    started = []

    def start(*argv: object, n: int, node_size: int) -> subprocess.Popen[str]:
        command = [GODWIT, "run", "-n", n, "--node-size", node_size, PROGRAM, *argv]
        process = subprocess.Popen([str(word) for word in command], env=job_environment() | {"GODWIT_JOB": "seen"},
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        for _ in range(n):
            assert "ready" in process.stdout.readline()
        return process
    yield start
    for process in started:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)




def tables(text: str) -> list[list[dict[str, str]]]:
    """Each table's rows; a cell ends where its title does."""
    found: list[list[dict[str, str]]] = []
    titles: list[tuple[str, int, int]] = []
    for line in text.splitlines():
        if line.startswith("  node "):
            places = [(m[0].strip(), m.end()) for m in re.finditer(r" *\S+(?: \S+)*", line)]
            titles = [(name, places[i - 1][1] if i else 0, end) for i, (name, end) in enumerate(places)]
            found.append([])
        elif titles and re.match(r" +(\d+|all) ", line):
            found[-1].append({name: line[start:end].strip(" █▏▎▍▌▋▊▉") for name, start, end in titles})
        else:
            titles = []
    return found


def test_top_shows_nodes_and_all_parameters_and_lines_up(job):
    running = job(30, 4000, 1, 2, n=4, node_size=2)
    time.sleep(0.5)
    done = run(GODWIT, "top", "--once")
    assert done.returncode == 0 and "\033" not in done.stdout
    # Ranks answer one after the other, so a key that moves meanwhile may be seen twice or not at all.
    found = [t for t in tables(done.stdout) if len(t) == 3 and 3800 <= int(t[-1]["keys here"].replace(",", "")) <= 4200]
    assert len(found) == 2, done.stdout
    for rows in found:
        assert [row["node"] for row in rows] == ["0", "1", "all"]
        assert [row["ranks"] for row in rows[:2]] == ["0-1", "2-3"]
        numbers = [int(row["keys here"].replace(",", "")) for row in rows]
        assert numbers[0] + numbers[1] == numbers[2]
        for row in rows:
            assert set(row) == {"node", "ranks", "workers", "keys here", "of all", "replicas", "keys/s", "local", "local ever",
                                "moves/s", "copies/s", "sent/s", "rounds/s", "clock", "stale"}
            assert 50 < float(row["local"].removesuffix(" %")) <= 100
            assert row["sent/s"].endswith("B") and row["sent/s"] != "0 B"
            assert row["keys/s"] != "0" and row["moves/s"] != "0" and re.fullmatch(r"[\d,]+(\.\.[\d,]+)?", row["clock"])
        assert rows[2]["workers"] == "4"
    lines = [line for line in done.stdout.splitlines() if line.startswith("  ") and "parameters" not in line]
    assert len({len(line) for line in lines}) == 1, done.stdout  # all end in the same column
    assert running.poll() is None


def test_top_of_a_job_with_one_node_and_of_one_that_lost_a_rank(job):
    running = job(30, 4000, 2, 1, n=2, node_size=2)
    rows = next(t for t in tables(run(GODWIT, "top", "--once").stdout) if t[0]["keys here"] == "4,000")
    assert len(rows) == 1 and rows[0]["ranks"] == "0-1" and rows[0]["workers"] == "4" and rows[0]["local"] == "100.0 %"
    assert "moves/s" not in rows[0]
    # A rank that is stopped does not answer; the others' figures are there all the same.
    pids = dict(re.findall(r"^ +(\d+) +(\d+) ", run(GODWIT, "ps").stdout, re.M))
    os.kill(int(pids["1"]), signal.SIGSTOP)
    try:
        shown = run(GODWIT, "top", "--once").stdout
        assert re.search(rf"rank 1 \(process {pids['1']}\) does not answer; its figures are [\d.]+ m?s old", shown), shown
        assert any(t[0]["keys here"] == "4,000" for t in tables(shown))
    finally:
        os.kill(int(pids["1"]), signal.SIGCONT)
    assert running.poll() is None


class Terminal:
    """`godwit top` in a terminal of its own."""

    def __init__(self, *argv: str, columns: int, rows: int) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(GODWIT, ["godwit", "top", *argv])
        self.resize(columns, rows)
        self.text = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, words: str, seconds: float = 10.0) -> str:
        """What comes until some words do."""
        end, start = time.monotonic() + seconds, len(self.text)
        while words not in self.text[start:]:
            assert select.select([self.fd], [], [], max(end - time.monotonic(), 0))[0], repr(self.text[start:])
            try:
                self.text += os.read(self.fd, 65536).decode()
            except OSError:  # it has ended
                break
        return self.text[start:]

    def end(self) -> int:
        self.until("\033[?1049l")
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


    def frame(self, is_wanted) -> list[str]:
        """The lines of the first frame of which something is true, without colours."""
        end = time.monotonic() + 10
        while True:
            text = self.until("\033[J").rpartition("\033[H")[2]
            lines = re.sub(r"\033\[[0-9;?]*[a-zA-Z]", "", text).split("\r\n")
            if is_wanted(lines):
                return lines
            assert time.monotonic() < end, lines


def test_top_is_live_follows_the_window_and_leaves_the_terminal_as_it_was(job):
    job(30, 4000, n=2, node_size=1)
    for key in (b"\x03", b"q"):  # Ctrl-C, and q
        terminal = Terminal("--interval", "0.3", columns=160, rows=40)
        wide = terminal.frame(lambda lines: any("rounds/s" in line for line in lines))
        assert wide[0].startswith("godwit top") and max(map(len, wide)) <= 160 and "\033[?1049h" in terminal.text
        terminal.resize(70, 6)
        narrow = terminal.frame(lambda lines: len(lines) <= 6)
        assert max(len(line.rstrip("\r")) for line in narrow) <= 70, narrow
        assert any("keys here" in line and "rounds/s" not in line for line in narrow)
        assert "more lines" in narrow[-1]
        os.write(terminal.fd, key)
        assert terminal.end() == 0
        assert terminal.text.endswith("\033[?25h\033[?1049l") and "Traceback" not in terminal.text
        os.close(terminal.fd)
