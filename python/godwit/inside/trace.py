"""Reading a trace, also one that ends in the middle because its job was killed.

A trace is a JSON array of events as Chrome and Perfetto read it, a line each.
What reports need:

    M  godwit             the job: ranks, nodes, clocks; the first line
    i  figures            all figures of a rank's parameters, now and then
    i  places             on which node the keys of each range are, now and then
    i  waits              what was waited for since the last time: how often, how long
    X  category "wait"    a wait that was not short
    X  category "agent"   what an agent did, many turns in one
"""

from __future__ import annotations

import glob
import json
from dataclasses import dataclass, field
from typing import Any

FORMAT = 1


class BadTrace(Exception):
    """A file that is no trace of ours; the text says why."""


@dataclass
class Trace:
    job: dict[str, Any]
    events: list[dict[str, Any]] = field(default_factory=list)
    thread_names: dict[int, str] = field(default_factory=dict)
    process_names: dict[int, str] = field(default_factory=dict)
    damaged: int = 0  # lines that could not be read
    is_whole: bool = True  # it has its end

    def of(self, phase: str, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["ph"] == phase and event["name"] == name]

    def spans(self, category: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["ph"] == "X" and event.get("cat") == category]


def _is_event(event: Any) -> bool:
    return (isinstance(event, dict) and isinstance(event.get("ph"), str) and isinstance(event.get("name"), str)
            and isinstance(event.get("ts"), (int, float)) and isinstance(event.get("pid"), int))


def parse(text: str) -> tuple[list[dict[str, Any]], int, bool]:
    """The events of a trace, how many lines are damaged, and whether it has its end."""
    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    if isinstance(whole, dict):  # as other programs save it
        whole = whole.get("traceEvents")
    if isinstance(whole, list):
        events = [event for event in whole if _is_event(event)]
        return events, len(whole) - len(events), True
    events, damaged = [], 0
    for line in text.splitlines():
        line = line.strip().rstrip(",")
        if line in ("", "[", "]"):
            continue
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if _is_event(event):
            events.append(event)
        else:
            damaged += 1
    return events, damaged, False


def _read_one(path: str) -> Trace:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError as error:
        raise BadTrace(f"cannot read '{path}': {error.strerror}") from None
    events, damaged, is_whole = parse(text)
    about = next((event for event in events if event["ph"] == "M" and event["name"] == "godwit"), None)
    if about is None or not isinstance(about.get("args"), dict):
        raise BadTrace(f"'{path}' is not a trace of Godwit: it has no line about a job; run the job with "
                       "GODWIT_TRACE=file to get one")
    if about["args"].get("format") != FORMAT:
        raise BadTrace(f"'{path}' has format {about['args'].get('format')!r}; this version reads format {FORMAT}")
    trace = Trace(about["args"], damaged=damaged, is_whole=is_whole)
    for event in events:
        args = event.get("args", {})
        if event["ph"] == "M" and event["name"] == "thread_name":
            trace.thread_names[event["tid"]] = args.get("name", "")
        elif event["ph"] == "M" and event["name"] == "process_name":
            trace.process_names[event["pid"]] = args.get("name", "")
        elif event["ph"] != "M":
            trace.events.append(event)
    return trace


def _offset_us(trace: Trace) -> float:
    """From the machine's own clock to the time of day."""
    return float(trace.job.get("unix_us", 0)) - float(trace.job.get("monotonic_us", 0))


def read(paths: list[str]) -> Trace:
    """Read a job's trace.  Those of several machines are put together by their time of day."""
    found = [path for given in paths for path in [given, *sorted(glob.glob(glob.escape(given) + ".rank-*"))]]
    traces = [_read_one(path) for path in dict.fromkeys(found)]
    first = traces[0]
    for other in traces[1:]:
        if other.job.get("job") != first.job.get("job") and other.job.get("fabric") != "mpi":
            raise BadTrace(f"these traces are of different jobs: '{first.job.get('job')}' and '{other.job.get('job')}'")
        shift = _offset_us(other) - _offset_us(first)
        for event in other.events:
            event["ts"] += shift
        first.events += other.events
        first.thread_names |= other.thread_names
        first.process_names |= other.process_names
        first.damaged += other.damaged
        first.is_whole &= other.is_whole
    first.events.sort(key=lambda event: event["ts"])
    return first
