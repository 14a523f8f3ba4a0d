"""What `godwit top` and `godwit report` make of figures and events, without a job."""

from __future__ import annotations

import json
import re

import pytest

from godwit.inside import charts, numbers, report, series, top, trace


@pytest.mark.parametrize("function, number, text", [
    (numbers.count, 0, "0"), (numbers.count, 7.25, "7.2"), (numbers.count, 99_999, "99,999"), (numbers.count, 100_000, "100 k"),
    (numbers.count, 1_234_567, "1.23 M"), (numbers.count, 5e12, "5.00 T"),
    (numbers.size, 0, "0 B"), (numbers.size, 999, "999 B"), (numbers.size, 1000, "1.00 kB"), (numbers.size, 123.4e6, "123 MB"),
    (numbers.size, 3.2e15, "3200 TB"),
    (numbers.span, 0, "0 ns"), (numbers.span, 1.5e-6, "1.50 us"), (numbers.span, 0.9999, "1.00 s"), (numbers.span, 75, "75.0 s"),
    (numbers.span, 3725, "1 h 02 min"), (numbers.span, 130, "2 min 10 s"),
    (numbers.share, 1.0, "100.0 %"), (numbers.share, 0.99999, "99.9 %"), (numbers.share, 0, "0.0 %"),
])
def test_numbers_are_short(function, number, text):
    assert function(number) == text


@pytest.mark.parametrize("text, short", [("100.0 %", "100 %"), ("1.50 us", "1.5 us"), ("2.05 ms", "2.05 ms"), ("10", "10"),
                                         ("15.0 MB/s", "15 MB/s"), ("20,000", "20,000"), ("1.00", "1")])
def test_ticks_have_no_idle_zeros(text, short):
    assert charts.tick_text(text) == short


def test_steps_are_round_and_reach_the_top():
    for high in (0.3, 1, 7, 99, 12_345, 1e9):
        steps = charts.nice_steps(high)
        assert steps[0] == 0 and steps[-1] >= high * 0.999 and 3 <= len(steps) <= 7
    assert charts.time_steps(0.1, 6.1) == [1, 2, 3, 4, 5, 6]
    assert charts.time_steps(0, 7200)[1] == 1200


# ---- series ----------------------------------------------------------------------


def test_growth_is_what_counts_grew_by_wherever_the_samples_lie():
    grid = series.Grid(0.0, 10.0, 5)
    assert series.growth([0.0, 10.0], [0.0, 100.0], grid) == [20.0] * 5
    assert sum(series.growth([1.0, 1.5, 9.0], [5.0, 6.0, 55.0], grid)) == pytest.approx(50.0)
    assert series.growth([], [], grid) == [0.0] * 5


def test_counts_that_begin_anew_are_not_lost():
    grid = series.Grid(0.0, 3.0, 3)
    grown = series.growth([0.0, 1.0, 2.0, 3.0], [0.0, 10.0, 4.0, 8.0], grid)
    assert grown == [10.0, 4.0, 4.0]


def test_a_state_is_the_last_that_was_seen():
    grid = series.Grid(0.0, 4.0, 4)
    assert series.state([1.0, 2.6], ["a", "b"], grid) == [None, "a", "a", "b"]


# ---- a trace that was made up ------------------------------------------------------

FIGURES = dict.fromkeys(("opening node nodes num_keys keys replicas workers clock_least clock_most accesses remote calls moves copied "
                         "dropped rounds messages bytes bytes_access bytes_replicas bytes_moves bytes_meetings staleness_ns "
                         "intent_ns clock_ns shared_bytes").split(), 0)


def made_up(n_nodes: int = 2, samples: int = 20) -> list[dict]:
    events = [{"ph": "M", "pid": 1, "tid": 0, "ts": 0, "name": "godwit",
               "args": {"format": 1, "version": "1", "job": "a <job>", "ranks": n_nodes, "nodes": n_nodes, "fabric": "shm",
                        "host": "here", "unix_us": 1.7e15, "monotonic_us": 1e6}}]
    for node in range(n_nodes):
        events += [{"ph": "M", "pid": node + 1, "tid": 0, "ts": 0, "name": "process_name",
                    "args": {"name": f"rank {node} (node {node})"}},
                   {"ph": "M", "pid": node + 1, "tid": 1000 * node + 2, "ts": 0, "name": "thread_name",
                    "args": {"name": "worker 0 of parameters 1"}}]
        for i in range(samples):
            at = 1e6 + i * 1e5
            figures = FIGURES | {"opening": 1, "node": node, "nodes": n_nodes, "num_keys": 100, "accesses": 1000 * i,
                                 "remote": 100 * i, "moves": 5 * i, "bytes": 10 * i, "clocks": [i]}
            events.append({"ph": "i", "s": "p", "pid": node + 1, "tid": 1, "ts": at, "name": "figures", "args": figures})
            owned = [10 * (node == i % n_nodes)] * 10
            events.append({"ph": "i", "s": "p", "pid": node + 1, "tid": 1, "ts": at, "name": "places",
                           "args": {"opening": 1, "node": node, "num_keys": 100, "owned": owned, "replicas": [0] * 10}})
        events.append({"ph": "X", "cat": "wait", "pid": node + 1, "tid": 1000 * node + 2, "ts": 1.2e6, "dur": 5e4,
                       "name": "the end of <a> pull", "args": {}})
        events.append({"ph": "i", "s": "p", "pid": node + 1, "tid": 1, "ts": 2e6, "name": "waits",
                       "args": {"of": "worker 0 of parameters 1", "for": "the end of <a> pull", "count": 3, "ns": 60_000_000,
                                "log2_us": [0, 2, 0, 1]}})
    return events


def write(path, events, text=None):
    path.write_text(json.dumps(events) if text is None else text)
    return str(path)


def test_a_trace_is_added_up(tmp_path):
    found = trace.read([write(tmp_path / "t", made_up())])
    kv = series.parameters(found)[0]
    grid = kv.grid()
    assert kv.nodes == [0, 1] and kv.last("accesses") == 2 * 19_000
    assert sum(kv.total("accesses", grid)) == pytest.approx(38_000)
    assert kv.local_share(grid)[1] == pytest.approx([0.9] * grid.n)
    assert sum(kv.owned(grid)[0]) + sum(kv.owned(grid)[1]) == pytest.approx(100 * grid.n)
    cause, = series.causes(found)
    assert (cause.count, cause.seconds, cause.buckets, cause.longest) == (6, 0.12, [0, 4, 0, 2], 0.05)


def test_a_page_says_what_the_trace_says_and_escapes_it(tmp_path):
    text = report.make(trace.read([write(tmp_path / "t", made_up())]))
    assert "a &lt;job&gt;" in text and "<job>" not in text and "<a>" not in text.replace("</a>", "")
    assert "90.0 %" in text and "38,000" in text
    one = report.make(trace.read([write(tmp_path / "t", made_up(1))]))
    assert "one node, so that nothing moves" in one and "Moves" not in one


def test_a_page_of_many_nodes_and_of_nothing_can_be_made(tmp_path):
    assert report.make(trace.read([write(tmp_path / "t", made_up(40, 3))])).count("<svg") == 13
    assert "None were open" in report.make(trace.read([write(tmp_path / "t", made_up()[:1])]))


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.9, 0.999])
def test_what_was_cut_off_is_read_as_far_as_it_goes(tmp_path, cut):
    whole = "[\n" + ",\n".join(map(json.dumps, made_up()))
    found = trace.read([write(tmp_path / "t", None, whole[:int(len(whole) * cut)])])
    assert not found.is_whole and found.damaged <= 1
    assert len(found.events) >= int(0.8 * cut * len(made_up())) - 5
    report.make(found)


def test_a_trace_that_another_program_saved_is_read(tmp_path):
    found = trace.read([write(tmp_path / "t", {"traceEvents": made_up(), "displayTimeUnit": "ms"})])
    assert found.is_whole and len(series.parameters(found)) == 1


def test_traces_of_several_machines_are_put_together_by_the_time_of_day(tmp_path):
    other = made_up()
    for event in other:
        event["pid"] += 2
    other[0]["args"] = other[0]["args"] | {"monotonic_us": 501e6}
    for event in other[1:]:
        event["ts"] += 500e6
        if event["name"] in ("figures", "places"):
            event["args"] = event["args"] | {"node": event["args"]["node"] + 2}
    write(tmp_path / "t.rank-2", other)
    found = trace.read([write(tmp_path / "t", made_up())])
    kv, = series.parameters(found)
    assert kv.nodes == [0, 1, 2, 3] and kv.grid().end == pytest.approx(1.9)


@pytest.mark.parametrize("text, words", [
    ("", "is not a trace of Godwit"), ("[]", "is not a trace of Godwit"), ("no json", "is not a trace of Godwit"),
    ('[{"ph":"M","pid":1,"tid":0,"ts":0,"name":"godwit","args":{"format":99}}]', "has format 99; this version reads format 1"),
    ("\x00\xff" * 100, "is not a trace of Godwit"),
])
def test_other_files_are_refused_by_name(tmp_path, text, words):
    with pytest.raises(trace.BadTrace, match=words) as refusal:
        trace.read([write(tmp_path / "some.json", None, text)])
    assert "some.json" in str(refusal.value)


# ---- top -------------------------------------------------------------------------


def rank(number: int, node: int, at: float, **more) -> dict:
    figures = FIGURES | {"opening": 3, "node": node, "nodes": 2, "num_keys": 1000, "keys": 250, "replicas": 7, "workers": 2,
                         "clock_least": 10 + number, "clock_most": 20 + number, "at_ns": int(at * 1e9)} | more
    return {"job": "train", "id": 1, "size": 4, "rank": number, "pid": 100 + number, "fate": 0, "answers": True, "left_out": 0,
            "figures": figures}


def looks(*answers):
    rest = iter(answers)
    return top.Looker(look=lambda: next(rest))


def test_a_node_is_the_sum_of_its_ranks_and_a_rate_the_difference_of_two_looks():
    looker = looks([rank(r, r // 2, 1.0, accesses=100, remote=50, bytes=1000) for r in range(4)],
                   [rank(r, r // 2, 3.0, accesses=300, remote=60, bytes=5000) for r in range(4)])
    looker.jobs()
    job, = looker.jobs()
    node = job.parameters[3].nodes[1]
    assert node.ranks == [2, 3] and node.workers == 4 and node.keys == 500 and node.clocks == (12, 23)
    assert node.a_second["accesses"] == 200 and node.a_second["bytes"] == 4000
    assert node.local_now == pytest.approx(0.95) and node.local_ever == pytest.approx(0.8)


def test_statistics_that_begin_anew_give_no_negative_rates():
    looker = looks([rank(0, 0, 1.0, moves=1000)], [rank(0, 0, 2.0, moves=10)])
    looker.jobs()
    assert looker.jobs()[0].parameters[3].nodes[0].a_second["moves"] == 10


def test_ranks_that_are_gone_or_silent_are_named():
    gone = rank(1, 0, 1.0) | {"fate": 2}
    silent = rank(2, 1, 1.0) | {"answers": False}
    job, = looks([rank(0, 0, 1.0) | {"left_out": 2}, gone, silent]).jobs()
    assert "2 more parameters are open, which are not shown" in job.notes[0]
    assert job.notes[1] == "rank 1 (process 101) died"
    assert re.fullmatch(r"rank 2 \(process 102\) does not answer; its figures are .* old", job.notes[2])


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_a_table_fits_and_lines_up(width):
    jobs = looks([rank(r, r // 2, 1.0, keys=123_456 * 10 ** r) for r in range(4)]).jobs()
    lines = top.draw(jobs, top.Paper(width)).lines
    assert max(map(len, lines)) <= width
    table = lines[2:]
    assert len({len(line) for line in table}) == 1 and table[0].split()[0] == "node" and table[-1].split()[0] == "all"
    assert "keys here" in table[0]


def test_colours_are_only_added():
    jobs = looks([rank(r, r // 2, 1.0, accesses=10, remote=9) for r in range(4)]).jobs()
    plain = top.draw(jobs, top.Paper(100)).lines
    coloured = top.draw(jobs, top.Paper(100, colours=True)).lines
    assert any("\033[" in line for line in coloured)
    assert [re.sub(r"\033\[\d+m", "", line) for line in coloured] == plain


def test_ranks_are_told_in_runs():
    assert top.ranks_text([3, 0, 1, 2, 7]) == "0-3,7" and top.ranks_text([5]) == "5"


def test_no_job_is_said():
    assert top.draw([], top.Paper()).lines == ["no job of yours runs on this machine"]
