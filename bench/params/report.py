"""The tables of a run, and whether the targets are met."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from statistics import median
from typing import Any

from table import Table, short

LOCAL_KEYS = 512
LOCAL_TIMES = 1.1
ONE_KEY_US = 3
ASLEEP_US = 70
MANY_M_KEYS = 10
LOCALIZE_KEYS = 10_000
LOCALIZE_M_KEYS = 2.5
INTENT_US = {1: 200, 1024: 1000}
HOT_SHARE = 0.6
AGE_MS = 4
IDLE_PERCENT = 2
BARE_M_KEYS = 2
COMPUTING_SHARE = 0.9
LOCAL_SHARE = 0.95


@dataclasses.dataclass(frozen=True)
class Spread:
    median: float
    lower: float
    upper: float

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.lower)}..{short(self.upper)})"


class Part:
    """The figures of one part in all rounds."""

    def __init__(self, run: dict[str, Any], name: str) -> None:
        self.rounds = [found[name] for found in run["rounds"] if name in found]

    def __bool__(self) -> bool:
        return bool(self.rounds)

    def figures(self, case: str, figure: str = "median") -> list[float]:
        return [found[case][figure] for found in self.rounds]

    def spread(self, case: str, scale: float = 1) -> Spread:
        """Median, 10 % and 90 %, of each round: the medians of them."""
        return Spread(*(scale * median(self.figures(case, figure)) for figure in ("median", "p10", "p90")))

    def per_second(self, case: str, n_keys: int) -> Spread:
        """M keys/s of calls that took so many ns."""
        spread = self.spread(case)
        return Spread(*(1e3 * n_keys / ns for ns in (spread.median, spread.upper, spread.lower)))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Of the rounds' own ratios the median, the least and the greatest."""
    each = [a / b for a, b in zip(ours, theirs)]
    return Spread(median(each), min(each), max(each))


def at_least(found: Spread, target: float, unit: str = "") -> list[str]:
    """A target and its verdict."""
    return [f">= {target:g}{unit}", "pass" if found.median >= target else "miss"]


def at_most(found: Spread, target: float, unit: str = "") -> list[str]:
    return [f"<= {target:g}{unit}", "pass" if found.median <= target else "miss"]


# ------------------------------------------------------------------- machine


def machine_table(part: Part) -> Table:
    table = Table("The machine, at the beginning of each round", ["", "figure"],
                  notes=["Lost: by a loop that only reads the clock, on both cores at once, in gaps of more than 5 us.",
                         "Four sums: a turn of a loop that adds in registers; who shares the core slows it down.",
                         "A chase: each step needs the line of the one before; 16 MB, of one core."])
    table.rows += [["time lost, %", part.spread("lost", 100)],
                   ["gaps, a second", part.spread("gaps")],
                   ["four sums, ns", part.spread("sums")],
                   ["a copy of 64 MB, GB/s", part.spread("copy")],
                   ["a step of a chase, ns", part.spread("chase")],
                   ["a line to the other core, ns", part.spread("ball")]]
    return table


# --------------------------------------------------------------------- local


def local_table(one: Part, two: Part) -> Table:
    table = Table(f"{LOCAL_KEYS} keys that are here, in a call",
                  ["", "two nodes, us", "one node, us", "x one node", "target", "verdict"],
                  notes=["Meanwhile: an asynchronous pull of 3 keys of the other node has just begun; with one node they",
                         "are here, and it has ended."])
    for kind in ("pull", "push", "set"):
        for how in ("", " meanwhile"):
            case = f"{kind}{how}"
            times = ratio(two.figures(case), one.figures(case))
            table.rows.append([f"{kind}{',' if how else ''}{how}", two.spread(case, 1e-3), one.spread(case, 1e-3), times,
                               *(["", ""] if how else at_most(times, LOCAL_TIMES))])
    return table


# -------------------------------------------------------------------- remote


def judge_remote(part: Part, case: str, n_keys: int) -> list[str]:
    if n_keys == 1:
        return at_most(part.spread(case, 1e-3), ASLEEP_US if "asleep" in case else ONE_KEY_US, " us")
    return at_least(part.per_second(case, n_keys), MANY_M_KEYS, " M keys/s") if n_keys == 1024 else ["", ""]


def remote_table(part: Part) -> Table:
    table = Table("Keys of the other node",
                  ["", "us", "M keys/s", "local keys, us", "x local time", "target", "verdict"],
                  notes=["Back to back, so that the agent there is awake; and after a pause of 5 ms, when it sleeps.",
                         "A bare wake-up: a thread of the other process sleeps on a futex, is woken, and answers in memory."])
    for kind in ("pull", "push"):
        for n_keys, asleep in ((1, ""), (1, " asleep"), (32, ""), (1024, "")):
            case = f"{kind} {n_keys}{asleep}"
            label = f"{kind} of {n_keys:,} key{'s' if n_keys > 1 else ''}{', after a pause' if asleep else ''}"
            table.rows.append([label, part.spread(f"remote {case}", 1e-3),
                               part.per_second(f"remote {case}", n_keys) if n_keys > 1 else None,
                               part.spread(f"local {case}", 1e-3),
                               ratio(part.figures(f"remote {case}"), part.figures(f"local {case}")),
                               *judge_remote(part, f"remote {case}", n_keys)])
    table.rows.append(["a bare wake-up, after a pause", part.spread("bare wake-up", 1e-3), None, None, None, "", ""])
    return table


# --------------------------------------------------------------------- moves


def localize_table(part: Part) -> Table:
    local = f"local pull {LOCALIZE_KEYS}"
    table = Table(f"localize, {LOCALIZE_KEYS:,} random keys in a call",
                  ["", "ms", "M keys/s", "local pull of as many, ms", "x its time", "target", "verdict"])
    for where, label in (("away", "from their home to the other node"), ("home", "back to their home")):
        case = f"localize {where}"
        rate = part.per_second(case, LOCALIZE_KEYS)
        table.rows.append([label, part.spread(case, 1e-6), rate, part.spread(local, 1e-6),
                           ratio(part.figures(case), part.figures(local)),
                           *at_least(rate, LOCALIZE_M_KEYS, " M keys/s")])
    return table


def intent_table(part: Part) -> Table:
    table = Table("From an intent to keys that are local", ["", "us", "target", "verdict"],
                  notes=["Keys of the other node that only this worker wants: they move."])
    for n_keys, target in INTENT_US.items():
        for asleep, how in (("", "one call after the other"), (" asleep", "after a pause of 5 ms")):
            found = part.spread(f"intent {n_keys}{asleep}", 1e-3)
            label = f"{n_keys:,} key{'s' if n_keys > 1 else ''}, {how}"
            table.rows.append([label, found, *at_most(found, target, " us")])
    return table


# ------------------------------------------------------------------ replicas


def hot_table(part: Part) -> Table:
    table = Table("10,000 keys that both nodes have, used by both workers all the time",
                  ["", "replicas", "own keys", "share", "target", "verdict"],
                  notes=["Batches of 512.  Own keys: the same loop on as many keys that nobody else wants.",
                         "Staleness: from a push on one node until the other one's worker sees it, under this load.",
                         "By statistics: what both workers' staleness_us says, 100 times a second.",
                         "Agents: their time on processors for each change of a replica, told and answered."])
    share = ratio(part.figures("hot"), part.figures("hot own"))
    table.rows.append(["M keys/s per worker", part.spread("hot", 1e-6), part.spread("hot own", 1e-6), share,
                       *at_least(share, HOT_SHARE)])
    for where, label in (("replica", "pushed at the owner"), ("owner", "pushed at the replica")):
        age = part.spread(f"hot age at {where}", 1e-6)
        table.rows.append([f"staleness, {label}, ms", age, None, None, *at_most(age, AGE_MS, " ms")])
    table.rows.append(["staleness, by statistics, ms", part.spread("hot staleness", 1e-3), None, None, "", ""])
    watched = ratio(part.figures("hot watched"), part.figures("hot"))
    table.rows.append(["x that rate, statistics read 100 times a second", watched, None, None, "", ""])
    table.rows.append(["reading all statistics, us", part.spread("hot read", 1e-3), None, None, "", ""])
    table.rows.append(["both agents, ns for a change", part.spread("hot change"), None, None, "", ""])
    table.rows.append(lost_row(part, "hot lost", 6))
    return table


def lost_row(part: Part, case: str, n_columns: int) -> list[Any]:
    """Whether the sums have every update: a row that ends with target and verdict."""
    lost = max(abs(value) for figure in ("p10", "median", "p90") for value in part.figures(case, figure))
    row: list[Any] = ["updates lost or doubled", f"{lost:g}"]
    return [*row, *[None] * (n_columns - 4), "= 0", "pass" if lost == 0 else "miss"]


def idle_table(part: Part) -> Table:
    table = Table("200,000 keys that both nodes have, idle",
                  ["", "with them", "without", "x without", "target", "verdict"],
                  notes=["Agents: both together, while the workers sleep.  Without: no key is replicated.",
                         "Staleness: of 100 keys pushed in a call, until all are seen.  Without: no others are there."])
    busy = part.spread("idle agents", 100)
    table.rows.append(["agents, % of a core", busy, part.spread("idle agents without replicas", 100),
                       ratio(part.figures("idle agents"), part.figures("idle agents without replicas")),
                       *at_most(busy, IDLE_PERCENT, " %")])
    age = part.spread("idle age", 1e-6)
    table.rows.append(["staleness of 100 keys, ms", age, part.spread("idle age of few", 1e-6),
                       ratio(part.figures("idle age"), part.figures("idle age of few")), *at_most(age, AGE_MS, " ms")])
    return table


# ---------------------------------------------------------------------- zipf


def zipf_row(one: Part, part: Part, nodes: int, announced: str, computing: str) -> list[Any]:
    case = f"{announced}{computing}"
    rate, local = part.spread(f"zipf{case}", 1e-6), part.spread(f"zipf local{case}")
    share = ratio(part.figures(f"zipf{case}"), one.figures(f"zipf{computing}"))
    label = (f"{nodes} node{'s' if nodes > 1 else ''}, {'1 ms of computing' if computing else 'bare loop'}, "
             + ("announced" if announced else "not announced"))
    judged = nodes == 2 and announced
    speed = at_least(share, COMPUTING_SHARE) if computing else at_least(rate, BARE_M_KEYS, " M keys/s")
    return [label, rate, share, *(speed if judged else ["", ""]), local,
            *(at_least(local, LOCAL_SHARE) if judged and computing else ["", ""])]


def zipf_table(one: Part, two: Part) -> Table:
    table = Table("Batches of 512 Zipf(1.0) keys of a million, pulled and pushed, two workers",
                  ["", "M keys/s per worker", "x one node", "target", "verdict", "local", "target", "verdict"],
                  notes=["A key that is pulled and pushed counts once.  Announced: 50 batches ahead.",
                         "x one node: beside the same loop on one node without announcements.",
                         "Local: share of keys that were local just before their pull; in brackets the two workers'."])
    for computing in ("", " computing"):
        for nodes, part in ((1, one), (2, two)):
            for announced in ("", " announced"):
                table.rows.append(zipf_row(one, part, nodes, announced, computing))
    for nodes, part in ((1, one), (2, two)):
        row = lost_row(part, "zipf lost", 5)
        table.rows.append([f"{nodes} node{'s' if nodes > 1 else ''}, {row[0]}", *row[1:], None, "", ""])
    return table


# ----------------------------------------------------------------------- all


def make_tables(run: dict[str, Any]) -> list[Table]:
    makers = {"machine 2": machine_table, "remote 2": remote_table, "localize 2": localize_table,
              "intent 2": intent_table, "hot 2": hot_table, "idle 2": idle_table}
    tables = [make(Part(run, name)) for name, make in makers.items() if Part(run, name)]
    if Part(run, "local 2"):
        after_machine = 1 if Part(run, "machine 2") else 0
        tables.insert(after_machine, local_table(Part(run, "local 1"), Part(run, "local 2")))
    if Part(run, "zipf 2"):
        tables.append(zipf_table(Part(run, "zipf 1"), Part(run, "zipf 2")))
    return tables


def print_about(run: dict[str, Any]) -> None:
    about = run["about"]
    print(f"{about['processor']}, cores {about['cores'][0]} and {about['cores'][1]}, Linux {about['kernel']}, "
          f"load before {about['load_before']:.2f}, after {about['load_after']:.2f}, took {about['took_s']:.0f} s")
    others = [part["others"] for found in run["rounds"] for part in found.values()]
    print(f"Cores that others used meanwhile: {median(others):.2f}, at most {max(others):.2f} during a part")
    print(f"Rounds: {len(run['rounds'])}.  Medians (10 %..90 %); of ratios medians (least..greatest)."
          + ("  Quick: a look, not a result." if about["quick"] else ""))
