"""Whether a trace is what Chrome and Perfetto expect: the format's rules for each phase, checked by hand.

    python trace_check.py FILE      prints what is wrong, or how many events there are
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from numbers import Real
from typing import Any

EPSILON_US = 0.0015  # times are written in thousandths


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _common(event: dict[str, Any]) -> str:
    for name, kind in (("ph", str), ("name", str), ("pid", int), ("tid", int)):
        if not isinstance(event.get(name), kind) or isinstance(event.get(name), bool):
            return f"{name} is {event.get(name)!r}"
    if not _is_number(event.get("ts")) or event["ts"] < 0:
        return f"ts is {event.get('ts')!r}"
    if "args" in event and not isinstance(event["args"], dict):
        return "args is no object"
    return ""


METADATA = {"process_name": ("name", str), "thread_name": ("name", str), "process_sort_index": ("sort_index", int),
            "thread_sort_index": ("sort_index", int), "godwit": ("format", int)}


def _by_phase(event: dict[str, Any]) -> str:
    phase = event["ph"]
    if phase == "M":
        if event["name"] not in METADATA:
            return f"there is no metadata '{event['name']}'"
        name, kind = METADATA[event["name"]]
        return "" if isinstance(event.get("args", {}).get(name), kind) else f"args has no {name}"
    if phase == "X":
        return "" if _is_number(event.get("dur")) and event["dur"] >= 0 else f"dur is {event.get('dur')!r}"
    if phase == "C":
        values = event.get("args", {}).values()
        return "" if values and all(map(_is_number, values)) else "a counter's args must be numbers"
    if phase in ("i", "I"):
        return "" if event.get("s") in ("g", "p", "t") else f"s is {event.get('s')!r}"
    return "" if phase in ("B", "E") else f"there is no phase '{phase}'"


def _spans_nest(spans: list[dict[str, Any]]) -> str:
    """X events of a thread are one after the other or one in the other."""
    open_until: list[float] = []
    for event in sorted(spans, key=lambda e: (e["ts"], -e["dur"])):
        while open_until and open_until[-1] <= event["ts"] + EPSILON_US:
            open_until.pop()
        end = event["ts"] + event["dur"]
        if open_until and end > open_until[-1] + EPSILON_US:
            return f"'{event['name']}' at {event['ts']} ends after the span around it"
        open_until.append(end)
    return ""


def _begins_and_ends(events: list[dict[str, Any]]) -> str:
    """B and E of a thread are in order of time and match."""
    stack: list[str] = []
    last = float("-inf")
    for event in events:
        if event["ts"] < last:
            return f"'{event['name']}' at {event['ts']} comes after {last}"
        last = event["ts"]
        if event["ph"] == "B":
            stack.append(event["name"])
        elif not stack or stack.pop() != event["name"]:
            return f"an end of '{event['name']}' at {event['ts']}, which has not begun"
    return f"'{stack[-1]}' has no end" if stack else ""


def problems(events: Any) -> list[str]:
    """All that is wrong with a trace, or []."""
    if isinstance(events, dict):
        events = events.get("traceEvents")
    if not isinstance(events, list) or not events:
        return ["it is no list of events"]
    wrong = []
    for i, event in enumerate(events):
        said = "no object" if not isinstance(event, dict) else _common(event) or _by_phase(event)
        if said:
            wrong.append(f"event {i}: {said}: {str(event)[:120]}")
    if wrong:
        return wrong
    threads: dict[tuple[int, int], list] = defaultdict(list)
    counters: dict[tuple, float] = {}
    instants: dict[tuple[int, int], float] = {}
    named = {"process_name": set(), "thread_name": set()}
    for event in events:
        thread = event["pid"], event["tid"]
        if event["ph"] == "M" and event["name"] in named:
            named[event["name"]].add(thread if event["name"] == "thread_name" else event["pid"])
        if event["ph"] in "XBE":
            threads[thread].append(event)
        for seen, phase, key in ((counters, "C", (event["pid"], event["name"], event.get("id"))), (instants, "i", thread)):
            if event["ph"] == phase:
                if event["ts"] < seen.get(key, 0):
                    wrong.append(f"'{event['name']}' of {key} goes back in time at {event['ts']}")
                seen[key] = event["ts"]
    for thread, own in threads.items():
        for said in (_spans_nest([e for e in own if e["ph"] == "X"]), _begins_and_ends([e for e in own if e["ph"] in "BE"])):
            wrong += [f"thread {thread}: {said}"] if said else []
    wrong += [f"thread {thread} has no name" for thread in [*threads, *instants] if thread not in named["thread_name"]]
    wrong += [f"process {pid} has no name" for pid in {e["pid"] for e in events} if pid not in named["process_name"]]
    tids = [tid for _, tid in named["thread_name"]]
    if len(tids) != len(set(tids)):
        wrong.append("two threads have the same number")
    return wrong


if __name__ == "__main__":
    found = json.load(open(sys.argv[1]))
    print("\n".join(problems(found)) or f"{len(found)} events, as they should be")
