"""The tables of a run, and whether the targets are met."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import Any

from table import Table, short

N_KEYS = {16: 1_000_000, 64: 1_000_000, 512: 200_000}
CACHE_KEYS = 4096         # of length 64: 1 MB
GIGABYTE_KEYS = 4_000_000  # of length 64
AHEADS = (0, 4, 8, 16, 24, 32)
# Share of the best loop, by kind of call and length.
SHARE_TARGETS = {"pull": {16: 0.4, 64: 0.7, 512: 0.9}, "push": {16: 0.4, 64: 0.75, 512: 0.9}}
TORCH_TARGET = 1.0
TWO_TARGET = 1.8
BEYOND_TARGET = 32
ONE_KEY_TARGET_US = 0.6
PYTHON_TARGET = 1.05
GAIN_TARGET = 0.95  # "as much": by no more than 5 % less
LEAST_ROUNDS = 5    # that were undisturbed, for a verdict about two workers
SIDE_BY_SIDE = 0.7  # of the time from the first one's begin to the last one's end, both worked
LOOPS = {"pull": "gather", "push": "scatter"}
TORCH = {"pull": "index_select", "push": "index_add"}

Rounds = Sequence[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Spread:
    median: float
    lower: float  # quartiles
    upper: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        lower, _, upper = quantiles(values, method="inclusive") if len(values) > 1 else values * 3
        return Spread(median(values), lower, upper)

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.lower)}..{short(self.upper)})"


def over(rounds: Rounds, figure: Callable[[dict[str, Any]], float]) -> Spread:
    return Spread.of([figure(found) for found in rounds])


def at_least(ratio: Spread, target: float | None) -> list[str]:
    """A target and its verdict."""
    return ["", ""] if target is None else [f">= {target:g}", "pass" if ratio.median >= target else "miss"]


def at_most(value: float, target: float, unit: str) -> list[str]:
    return [f"<= {target:g}{unit}", "pass" if value <= target else "miss"]


# --------------------------------------------------------------------- speed


def best_loop(rounds: Rounds, call: str) -> str:
    return min((f"{LOOPS[call]} {ahead}" for ahead in AHEADS),
               key=lambda loop: median(found[loop] for found in rounds))


def speed_row(case: dict[str, Any], label: str, rounds: Rounds, call: str, judged: bool) -> list[Any]:
    loop, torch = best_loop(rounds, call), TORCH[call]
    share = over(rounds, lambda found: found[loop] / found[call])
    faster = over(rounds, lambda found: found[torch] / found[call])
    target = SHARE_TARGETS[call][case["length"]] if judged else None
    return [label, over(rounds, lambda found: found[call]), over(rounds, lambda found: found[loop]),
            loop.split()[1] if not loop.endswith(" 0") else "none",
            over(rounds, lambda found: found[f"{LOOPS[call]} 0"]), over(rounds, lambda found: found[torch]),
            share, *at_least(share, target), faster, *at_least(faster, TORCH_TARGET if judged else None)]


def speed_table(run: dict[str, Any], call: str) -> Table:
    names = {"pull": ("gather", "index_select"), "push": ("scatter-add", "index_add_")}[call]
    table = Table(
        f"{call}, one worker, ns per key",
        ["", call, f"best {names[0]} loop", "ahead", "loop, no prefetch", f"torch.{names[1]}", "share of best loop",
         "target", "verdict", f"x {names[1]}", "target", "verdict"],
        notes=[f"share: of the speed of the best plain C loop, here {names[0]} over a private array with the same pages.",
               f"x {names[1]}: 2.0 means half the time of PyTorch's, one thread, on a private array."])
    for case in run["speed"]:
        for keys, rounds in case["rounds"].items():
            huge = case["c"]["store_huge_bytes"] / case["c"]["store_bytes"]
            in_cache = case["n_keys"] == CACHE_KEYS
            pages = "huge pages" if huge > 0.9 else "4 KiB pages" if huge == 0 else f"{huge:.0%} in huge pages"
            label = f"{case['length']}, {keys}, " + ("in cache (1 MB)" if in_cache else pages)
            judged = keys == "uniform" and case["pages"] == "huge" and not in_cache
            table.rows.append(speed_row(case, label, rounds, call, judged))
    return table


def memory_table(run: dict[str, Any]) -> Table:
    table = Table("Resident bytes per key beyond its values", ["", "store", "per key", "target", "verdict"],
                  notes=["What the process has more in memory after opening and touching every key."])
    for case in run["speed"]:
        if case["n_keys"] != CACHE_KEYS and case["pages"] == "huge":
            beyond = case["c"]["resident_bytes"] / case["n_keys"] - 4 * case["length"]
            table.rows.append([f"length {case['length']}, {case['n_keys']:,} keys",
                               f"{case['c']['store_bytes'] / 1e6:.0f} MB", short(beyond),
                               *at_most(beyond, BEYOND_TARGET, "")])
    return table


# ----------------------------------------------------------------------- two


def rate(answer: dict[str, Any]) -> float:
    """Keys per ns of all workers, each by its median batch."""
    return sum(1 / ns for ns in answer["ns"])


def is_undisturbed(answer: dict[str, Any]) -> bool:
    """Whether all its workers ran side by side, and nobody took a core from them."""
    begins, ends = zip(*answer["span"])
    return not any(answer["lost"]) and min(ends) - max(begins) >= SIDE_BY_SIDE * (max(ends) - min(begins))


def undisturbed(rounds: Rounds, *calls: str) -> tuple[Rounds, bool]:
    """The rounds in which these calls were undisturbed; all, and False, if they are too few."""
    left = [found for found in rounds if all(is_undisturbed(found[call]) for call in calls)]
    return (left, True) if len(left) >= LEAST_ROUNDS else (rounds, False)


def gain(rounds: Rounds, call: str) -> tuple[Spread, bool]:
    """How many times the keys per second two have, and whether they were two."""
    left, clear = undisturbed(rounds, f"{call} 1", f"{call} 2")
    return over(left, lambda found: rate(found[f"{call} 2"]) / rate(found[f"{call} 1"])), clear


def judge_gain(found: tuple[Spread, bool], target: float | None) -> list[str]:
    spread, clear = found
    return at_least(spread, target) if clear or target is None else [f">= {target:g}", "unclear"]


def two_table(run: dict[str, Any]) -> Table:
    table = Table("Two workers beside one: how many times the keys per second",
                  ["", "one, M keys/s", "two, M keys/s", "gain", "rounds", "target", "verdict", "loops gain"],
                  notes=["rounds: in which both ran side by side undisturbed; if fewer than 5, all count, and decide nothing.",
                         "loops gain: two threads of the plain loop (16 keys ahead) beside one, on one private array;",
                         "with Zipf keys two scatter loops lose updates to each other, which a store must not."])
    for case in run["two"]:
        for who in ("threads", "processes"):
            for keys, rounds in case[who].items():
                for call in ("pull", "push"):
                    left, clear = undisturbed(rounds, f"{call} 1", f"{call} 2")
                    found = gain(rounds, call)
                    table.rows.append([
                        f"{call}, {case['length']}, {keys}, two {who}",
                        over(left, lambda found: 1e3 * rate(found[f"{call} 1"])),
                        over(left, lambda found: 1e3 * rate(found[f"{call} 2"])), found[0],
                        f"{len(left) if clear else 0} of {len(rounds)}",
                        *judge_gain(found, TWO_TARGET if keys == "uniform" else None),
                        gain(rounds, LOOPS[call])[0] if who == "threads" else None])
    return table


# -------------------------------------------------------------------- python


def python_table(rounds: Rounds) -> Table:
    table = Table("From Python beside C, length 64, uniform keys, the same store",
                  ["", "Python", "C", "Python beside C", "target", "verdict"])
    if not rounds:
        return table
    for which, name in {"same": "the same again and again", "random": "another each time"}.items():
        one, in_c = (over(rounds, lambda found: found[f"{who} one {which}"]["ns"] / 1e3) for who in ("python", "c"))
        table.rows.append([f"pull of one key, {name}, us", one, in_c, None,
                           *at_most(one.median, ONE_KEY_TARGET_US, " us")])
    for call in ("pull", "push"):
        more = over(rounds, lambda found: found[f"python {call} 1"]["ns"][0] / found[f"c {call} 1"]["ns"][0])
        times = [over(rounds, lambda found: 1.024 * found[f"{who} {call} 1"]["ns"][0]) for who in ("python", "c")]
        table.rows.append([f"{call} of 1024 keys, us", *times, f"{more} x time",
                           *(at_most(more.median, PYTHON_TARGET, " x time") if call == "pull" else ["", ""])])
    for call in ("pull", "push"):
        left, clear = undisturbed(rounds, *(f"{who} {call} {n}" for who in ("python", "c") for n in (1, 2)))
        gains = [over(left, lambda found: gain_in(found, who, call)) for who in ("python", "c")]
        beside = over(left, lambda found: gain_in(found, "python", call) / gain_in(found, "c", call))
        table.rows.append([f"{call}, gain of two threads", *gains, f"{beside} x gain",
                           *judge_gain((beside, clear), GAIN_TARGET)])
    return table


def gain_in(found: dict[str, Any], who: str, call: str) -> float:
    return rate(found[f"{who} {call} 2"]) / rate(found[f"{who} {call} 1"])


# --------------------------------------------------------------------- pages


def pages_table(run: dict[str, Any]) -> Table:
    table = Table("A store of 1 GB on its way into huge pages",
                  ["", "seconds to the end", "in huge pages then", "pull before, ns per key", "meanwhile", "afterwards"],
                  notes=["Seconds count from the opening, the others from the first pull; before: the first tenth of a second."])
    for workers, found in run["pages"].items():
        watch, store = found["watch"], found["store_bytes"]
        if not watch:
            table.rows.append(["nobody pulls", f"{found['settled_s']:.1f}", f"{found['store_huge_bytes'] / store:.0%}",
                               None, None, None])
            continue
        most = watch[-1][2]
        done = most > 0.98 * store
        end = next(seconds for seconds, _, n_bytes in watch if n_bytes == most) if done else watch[-1][0]
        during = [ns for seconds, ns, _ in watch[1:] if seconds < end]
        after = [ns for seconds, ns, _ in watch if seconds > end]
        table.rows.append([f"{workers} worker{'s pull' if workers != '1' else ' pulls'}",
                           f"{end:.1f}" if done else f"more than {end:.0f}", f"{most / store:.0%}", short(watch[0][1]),
                           Spread.of(during) if during else None, Spread.of(after) if after else None])
    return table


# ----------------------------------------------------------------------- all


def make_tables(run: dict[str, Any]) -> list[Table]:
    tables = [speed_table(run, "pull"), speed_table(run, "push"), memory_table(run), two_table(run),
              python_table(run["python"]), pages_table(run)]
    return [table for table in tables if table.rows]


def print_about(run: dict[str, Any]) -> None:
    about = run["about"]
    print(f"{about['processor']}, cores {about['cores'][0]} and {about['cores'][1]}, Linux {about['kernel']}"
          + (f", PyTorch {about['torch']}" if "torch" in about else "")
          + f", load before {about['load_before']:.2f}, after {about['load_after']:.2f}, took {about['took_s']:.0f} s")
    print(f"Rounds: {about['rounds']}.  Medians (quartiles)."
          + ("  Quick: a look, not a result." if about["quick"] else ""))
