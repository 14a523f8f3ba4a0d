"""The tables of a run, and whether the targets are met."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from peers import MPIS, NAMES
from table import Table, short

N_RANKS = (2, 4)
SIZE_NAMES = {8: "8 B", 80: "80 B", 800: "800 B", 8_000: "8 KB", 80_000: "80 KB", 800_000: "800 KB",
              8_000_000: "8 MB", 80_000_000: "80 MB"}
ALLREDUCE_SIZES = tuple(SIZE_NAMES)
# Times as fast as Open MPI.  Below 1e3 doubles nothing was promised.
ALLREDUCE_TARGETS = {8_000: 1.2, 80_000: 1, 800_000: 1, 8_000_000: 2, 80_000_000: 3}
OTHER_KINDS = {"bcast": "Bcast", "allgather": "Allgather", "alltoall": "Alltoall", "reduce_scatter": "Reduce_scatter"}
OTHER_SIZES = (8, 8_000, 800_000, 80_000_000)
LIMITED_KINDS = {"allreduce": "Allreduce", "allgather": "Allgather", "alltoall": "Alltoall"}
LARGEST, SECOND = ALLREDUCE_SIZES[-1], ALLREDUCE_SIZES[-2]
PYTHON_DOUBLES = (1_000, 1_000_000, 10_000_000)
GLOO_TARGET = 2
ABOVE_C_TARGET_US = 10
MPI4TORCH_TARGET = 1

Rounds = Sequence[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Spread:
    median: float
    least: float
    greatest: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.least)}..{short(self.greatest)})"


def over(rounds: Rounds, figure: Callable[[dict[str, Any]], float]) -> Spread | None:
    """A figure's spread over the rounds that have it; None if none does."""
    values = []
    for found in rounds:
        with contextlib.suppress(KeyError):
            values.append(figure(found))
    return Spread.of(values) if values else None


def judge_ratio(ratio: Spread | None, target: float | None) -> str:
    if target is None:
        return ""
    return "not measured" if ratio is None else "pass" if ratio.median >= target else "miss"


# -------------------------------------------------------------------- from C


def time_of(rounds: Rounds, peer: str, cell: str) -> Spread | None:
    return over(rounds, lambda found: found[peer][cell]["us"])


def ratio_to(rounds: Rounds, peer: str, cell: str) -> Spread | None:
    """How many times as fast as the peer Godwit is, with the same PyTorch."""
    godwit = "godwit-there" if peer == "mpi4torch" else "godwit"
    return over(rounds, lambda found: found[peer][cell]["us"] / found[godwit][cell]["us"])


def c_row(rounds: Rounds, label: str, cell: str) -> list[Any]:
    return [label, *(time_of(rounds, peer, cell) for peer in NAMES), *(ratio_to(rounds, mpi, cell) for mpi in MPIS)]


C_HEAD = ["", *(f"{name} us" for name in NAMES.values()), *(f"x {name}" for name in MPIS.values())]


def allreduce_table(rounds: Rounds, n_ranks: int) -> Table:
    table = Table(f"Allreduce SUM from C, {n_ranks} ranks", [*C_HEAD, "target", "verdict"])
    for n_bytes, name in SIZE_NAMES.items():
        cell, target = f"allreduce:{n_bytes}", ALLREDUCE_TARGETS.get(n_bytes)
        table.rows.append([*c_row(rounds, name, cell),
                           "" if target is None else f">= {target:g} x Open MPI",
                           judge_ratio(ratio_to(rounds, "openmpi", cell), target)])
    return table


def others_table(rounds: Rounds, n_ranks: int) -> Table:
    table = Table(f"Other collectives from C, {n_ranks} ranks, for orientation", C_HEAD,
                  notes=["Calls follow one another: the root of a small MPI_Bcast does not wait for anybody and "
                         "runs ahead, while Godwit's", "first compares what the ranks call, so that all wait for all."])
    for kind, name in OTHER_KINDS.items():
        table.rows += [c_row(rounds, f"{name}, {SIZE_NAMES[n]}", f"{kind}:{n}") for n in OTHER_SIZES]
    return table


def limit_table(c: Rounds) -> Table:
    table = Table(
        f"{SIZE_NAMES[LARGEST]} from C beside memcpy",
        ["", "memcpy GB/s", *(f"{name} GB/s" for name in NAMES.values()),
         *(f"{name}, % of memcpy" for name in NAMES.values())],
        notes=[f"memcpy: {SIZE_NAMES[LARGEST]} by both cores at once, a half each; bytes copied divided by time.",
               "Collectives: bytes of all ranks' outputs divided by time.",
               "100 %: as fast as copying all the outputs once."])
    for n_ranks in N_RANKS:
        rounds = [found[str(n_ranks)] for found in c]
        for kind, name in LIMITED_KINDS.items():
            cell = f"{kind}:{LARGEST}"

            def speed(found: dict[str, Any], peer: str) -> float:
                return n_ranks * LARGEST / found[peer][cell]["us"] / 1e3

            table.rows.append([
                f"{name}, {n_ranks} ranks", over(rounds, lambda found: found["copy"]),
                *(over(rounds, lambda found: speed(found, peer)) for peer in NAMES),
                *(over(rounds, lambda found: 100 * speed(found, peer) / found["copy"]) for peer in NAMES)])
    return table


def memory_table(c: Rounds) -> Table:
    """The greatest over the rounds, not the median: it is a bound."""
    table = Table(
        "Memory that the ranks of a job share, MB",
        ["", "Godwit before", f"at {SIZE_NAMES[SECOND]} Allreduce",
         *(f"at {SIZE_NAMES[LARGEST]} {name}" for name in LIMITED_KINDS.values()),
         *(f"{name} touched" for name in NAMES.values()), "target", "verdict"],
        notes=["before, at: allocated to the job's shared file before the first collective, and most during a call.",
               "touched: of all shared mappings by all ranks, after everything (Pss).  Arrays are not shared."])

    def most(rounds: Rounds, peer: str, cell: str, field: str) -> float | None:
        found = over(rounds, lambda found: found[peer][cell][field] / 1e6)
        return None if found is None else found.greatest

    for n_ranks in N_RANKS:
        rounds = [found[str(n_ranks)] for found in c]
        before = most(rounds, "godwit", f"allreduce:{ALLREDUCE_SIZES[0]}", "shared_before")
        second = most(rounds, "godwit", f"allreduce:{SECOND}", "shared_most")
        largest = [most(rounds, "godwit", f"{kind}:{LARGEST}", "shared_most") for kind in LIMITED_KINDS]
        touched = [most(rounds, peer, f"{list(OTHER_KINDS)[-1]}:{LARGEST}", "shared_touched") for peer in NAMES]
        bounded = "not measured" if second is None else "pass" if max(largest) <= second else "miss"
        table.rows.append([f"{n_ranks} ranks", *(None if mb is None else short(mb)
                                                 for mb in (before, second, *largest, *touched)),
                           f"no more than at {SIZE_NAMES[SECOND]}", bounded])
    return table


# --------------------------------------------------------------- from Python


def doubles(n: int) -> str:
    return f"1e{len(str(n)) - 1} doubles"


def forward_table(python: Rounds) -> Table:
    table = Table(
        "Allreduce from Python, forward",
        ["", "Godwit us", "gloo us", "gloo, copied us", "Godwit there us", "mpi4torch us", "x gloo", "x gloo, copied",
         "x mpi4torch", "target", "verdict"],
        notes=["Godwit, mpi4torch: through autograd, with a new tensor as result.  gloo: in place, without autograd;",
               "copied: on a copy that is made for the call, without autograd.  there: with mpi4torch's PyTorch."])
    for n_ranks in N_RANKS:
        rounds = [found[str(n_ranks)] for found in python]
        for n in PYTHON_DOUBLES:
            cell, copied = f"forward:{n}", f"copied:{n}"
            ratio = ratio_to(rounds, "gloo", cell)
            table.rows.append([
                f"{n_ranks} ranks, {doubles(n)}", time_of(rounds, "godwit", cell), time_of(rounds, "gloo", cell),
                time_of(rounds, "gloo", copied), time_of(rounds, "godwit-there", cell),
                time_of(rounds, "mpi4torch", cell), ratio,
                over(rounds, lambda found: found["gloo"][copied]["us"] / found["godwit"][cell]["us"]),
                ratio_to(rounds, "mpi4torch", cell), f">= {GLOO_TARGET:g} x gloo", judge_ratio(ratio, GLOO_TARGET)])
    return table


def both_table(python: Rounds) -> Table:
    table = Table("Allreduce from Python, forward and backward",
                  ["", "Godwit us", "Godwit there us", "mpi4torch us", "x mpi4torch", "target", "verdict"],
                  notes=["there: with mpi4torch's PyTorch, as what is compared with it."])
    for n_ranks in N_RANKS:
        rounds = [found[str(n_ranks)] for found in python]
        for n in PYTHON_DOUBLES:
            cell = f"both:{n}"
            ratio = ratio_to(rounds, "mpi4torch", cell)
            table.rows.append([f"{n_ranks} ranks, {doubles(n)}", time_of(rounds, "godwit", cell),
                               time_of(rounds, "godwit-there", cell), time_of(rounds, "mpi4torch", cell), ratio,
                               f">= {MPI4TORCH_TARGET:g} x mpi4torch", judge_ratio(ratio, MPI4TORCH_TARGET)])
    return table


def judge_above(above: Spread | None, c: Spread | None) -> str:
    if above is None or c is None:
        return "not measured"
    if above.median <= ABOVE_C_TARGET_US:
        return "pass"
    return "unclear" if above.median < c.greatest - c.least else "miss"


def above_table(python: Rounds) -> Table:
    table = Table("Allreduce of Godwit from Python above the call from C, us",
                  ["", "forward", "C, output given", "C, output new", "above given", "above new", "target", "verdict"])
    for n_ranks in N_RANKS:
        rounds = [found[str(n_ranks)] for found in python]
        for n in PYTHON_DOUBLES:
            forward, c_cells = f"forward:{n}", (f"allreduce:{8 * n}", f"fresh:{8 * n}")
            in_c = [time_of(rounds, "c", cell) for cell in c_cells]
            above = [over(rounds, lambda found: found["godwit"][forward]["us"] - found["c"][cell]["us"])
                     for cell in c_cells]
            table.rows.append([f"{n_ranks} ranks, {doubles(n)}", time_of(rounds, "godwit", forward), *in_c, *above,
                               f"given <= {ABOVE_C_TARGET_US} us", judge_above(above[0], in_c[0])])
    return table


# ----------------------------------------------------------------------- all


def make_tables(run: dict[str, Any]) -> list[Table]:
    tables = []
    if run["c"]:
        for n_ranks in N_RANKS:
            rounds = [found[str(n_ranks)] for found in run["c"]]
            tables += [allreduce_table(rounds, n_ranks), others_table(rounds, n_ranks)]
        tables += [limit_table(run["c"]), memory_table(run["c"])]
    if run["python"]:
        tables += [forward_table(run["python"]), above_table(run["python"]), both_table(run["python"])]
    return tables


def print_about(run: dict[str, Any]) -> None:
    about = run["about"]
    print(f"{about['processor']}, cores {about['cores'][0]} and {about['cores'][1]}, Linux {about['kernel']}, "
          + ", ".join(f"{NAMES[peer]} {version}" for peer, version in about["versions"].items())
          + f", load before {about['load_before']:.2f}, took {about['took_s']:.0f} s")
    for peer, said in about["python"].items():
        print(f"{peer} from Python {said['python']}, PyTorch {said['torch']}, started by {said['launcher']}")
    print(f"Rounds: {len(run['c'] or run['python'])}.  Medians (least..greatest).  "
          "'x Open MPI' 2.0: Godwit needs half the time."
          + ("  Quick: a look, not a result." if about["quick"] else ""))
