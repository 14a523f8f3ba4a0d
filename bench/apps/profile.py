#!/usr/bin/env python3
"""Where the time of apps/kge goes: what is Godwit's, and what is PyTorch's arithmetic.

    godwit run -n 2 bench/apps/profile.py --dataset DIR --dim 200 --batch 1024 --negatives 100 --epochs 2

Takes the options of apps/kge.  Clocks are put around what is Godwit's: looking rows up (finding those that occur twice, pulling,
arranging), combining their gradients, the optimizer's changes, pushing, announcing, drawing samples, clocks.  All that is left
of an epoch is the model's arithmetic and its gradients, which an ordinary PyTorch program has too; the optimizer is such a thing
as well, and has a line of its own.  A clock takes about 0.3 us, twice for each call.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "apps" / "kge"))

import torch  # noqa: E402

import godwit  # noqa: E402
from godwit.nn import embedding  # noqa: E402
from godwit.show import say, table  # noqa: E402

spent: dict[str, float] = defaultdict(float)
calls: dict[str, int] = defaultdict(int)
within: list[str] = []  # what is timed inside something that is timed belongs to the inner one


def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        within.append(name)
        start = time.perf_counter()
        try:
            return function(*args, **more)
        finally:
            took = time.perf_counter() - start
            within.pop()
            spent[name] += took
            calls[name] += 1
            if within:
                spent[within[-1]] -= took
    return call


class TimedWorker:
    """A worker with a clock at each call."""

    def __init__(self, worker: godwit.Worker) -> None:
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._worker, name)
        if callable(found):
            found = self.__dict__[name] = timed(name, found)  # is found there the next time
        return found


def put_clocks() -> None:
    for name, text in (("forward", "look up: rows once, arrange"), ("sample", "look up: rows once, arrange"),
                       ("intent", "announce: rows once")):
        setattr(embedding.Embedding, name, timed(text, getattr(embedding.Embedding, name)))
    embedding._EndOfPass.__call__ = timed("combine what a pass has", embedding._EndOfPass.__call__)
    embedding._LookUp.backward = staticmethod(timed("add gradients of a row", embedding._LookUp.backward))
    for optimizer in (godwit.optim.SGD, godwit.optim.Adagrad, godwit.optim.Adam):
        optimizer.changes = timed("optimizer", optimizer.changes)


def main() -> None:
    from importlib.machinery import SourceFileLoader

    kge = SourceFileLoader("kge", str(ROOT / "apps" / "kge" / "__main__.py")).load_module()
    from train import announced, train_epoch

    put_clocks()
    options = kge.parse_options()
    torch.set_num_threads(options.threads)
    godwit.init()
    job = kge.open_job(options)
    job.worker = TimedWorker(job.worker)
    for rows in (job.entities, job.relations):
        rows.worker = job.worker
        rows._pass.worker = job.worker
    batches = announced(job, 0)
    for _ in train_epoch(job, batches):
        pass  # once without looking: memory is touched, code is loaded
    spent.clear()
    calls.clear()
    start = time.perf_counter()
    for _ in range(options.epochs):
        for _ in train_epoch(job, batches):
            pass
    whole = time.perf_counter() - start
    rows = [[name, f"{calls[name]:,}", f"{seconds:.3f}", f"{seconds / whole:.1%}"]
            for name, seconds in sorted(spent.items(), key=lambda item: -item[1])]
    ours = sum(seconds for name, seconds in spent.items() if name != "optimizer")
    rows += [["Godwit", "", f"{ours:.3f}", f"{ours / whole:.1%}"],
             ["the model, its gradients, batches", "", f"{whole - sum(spent.values()):.3f}", f"{1 - sum(spent.values()) / whole:.1%}"],
             ["all", "", f"{whole:.3f}", "100.0%"]]
    say(table([f"rank 0 of {godwit.world().size}", "calls", "seconds", "share"], rows))
    godwit.barrier()


if __name__ == "__main__":
    main()
