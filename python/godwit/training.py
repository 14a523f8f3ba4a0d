"""What programs that train have in common, when all that they learn is in Parameters: epochs, checkpoints, progress.

    parser = training.options("mf", epochs=20)            # those that all have; a program adds its own
    options = training.parse(parser)
    ...
    run = Training(options, kv, worker, name="ratings", items="ratings", measures={"rmse": "RMSE"})
    run.epochs(batches, n_batches, measure)               # a bar, a line for each epoch, checkpoints
    run.end()                                             # a picture, and the last word

A batch is trained by the program, in a generator that gives the loss of each and how many items it had.  Ctrl-C ends the
epoch after the batch at hand, on all ranks, with a checkpoint; `--resume` goes on from the last one, on any number of
ranks.  Everything here but `parse` is collective.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Optional, TypeVar

from . import Parameters, Worker
from .show import Bar, Curve, curves, say, speaks

__all__ = ["Ranks", "Training", "at_least", "in_step", "known_ahead", "options", "parse"]


# ---- options -----------------------------------------------------------------------------------------------------


def options(name: str, description: str = "", **defaults: Any) -> argparse.ArgumentParser:
    """A parser with the options of all programs that train; `defaults` are other ones than theirs."""
    parser = argparse.ArgumentParser(prog=name, description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--config", type=Path, metavar="FILE", help="JSON with values for other options")
    training = parser.add_argument_group("training")
    training.add_argument("--epochs", type=int, default=20)
    training.add_argument("--ahead", type=int, default=10, help="batches that are announced ahead; 0: none")
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--threads", type=int, default=1, help="of PyTorch, for each process")
    out = parser.add_argument_group("output")
    out.add_argument("--output", type=Path, metavar="DIR", help="for checkpoint, history and picture "
                     f"(default: {name}-DATA)")
    out.add_argument("--evaluate-every", type=int, default=5, metavar="EPOCHS")
    out.add_argument("--save-every", type=int, default=5, metavar="EPOCHS", help="a checkpoint")
    out.add_argument("--resume", action="store_true", help="go on from the checkpoint in --output")
    parser.set_defaults(**defaults)
    return parser


def parse(parser: argparse.ArgumentParser, words: Optional[list[str]] = None) -> argparse.Namespace:
    """The options; what is not on the command line may be in the file of --config."""
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--config", type=Path)
    config = first.parse_known_args(words)[0].config
    if config is not None:
        parser.set_defaults(**_read_config(parser, config))
    found = parser.parse_args(words)
    at_least(parser, found, evaluate_every=1, save_every=1, ahead=0)
    return found


def at_least(parser: argparse.ArgumentParser, found: argparse.Namespace, **least: int) -> None:
    """Refuse options that are smaller than these."""
    for name, bound in least.items():
        if getattr(found, name) < bound:
            parser.error(f"--{name.replace('_', '-')} {getattr(found, name)}: it must be {bound} or more")


def _read_config(parser: argparse.ArgumentParser, path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        parser.error(f"--config {path}: {error}")
    if not isinstance(config, dict):
        parser.error(f"--config {path}: it must hold {{\"option\": value, ...}}")
    known = {action.dest for action in parser._actions}
    config = {name.replace("-", "_"): value for name, value in config.items()}
    if unknown := sorted(set(config) - known):
        parser.error(f"--config {path}: there is no option {', '.join(unknown)}")
    return config


# ---- epochs ------------------------------------------------------------------------------------------------------

Batch = TypeVar("Batch")
Batches = Callable[[int], Iterator[tuple[float, int]]]


def known_ahead(batches: Iterable[Batch], n: int, announce: Callable[[Batch], None]) -> Iterator[Batch]:
    """The batches, one after the other; each is announced when there are `n` yet to come before it.

    >>> list(known_ahead("abc", 1, lambda batch: print("announced", batch)))
    announced a
    announced b
    announced c
    ['a', 'b', 'c']
    """
    waiting: deque[Batch] = deque()
    for batch in batches:
        announce(batch)
        waiting.append(batch)
        if len(waiting) > n:
            yield waiting.popleft()
    yield from waiting


def in_step(worker: Worker) -> None:
    """Until everybody sees what everybody has pushed."""
    worker.wait_all()
    worker.wait_sync()
    worker.barrier()
    worker.wait_sync()


class Ranks:
    """How many take part, and what they find together.  A program whose C code joined the job gives one of its own."""

    @property
    def size(self) -> int:
        from .comm import COMM_WORLD

        return COMM_WORLD.size

    def sums(self, values: list[float]) -> list[float]:
        from .comm import MPI_SUM

        return self._together(values, MPI_SUM)

    def largest(self, values: list[float]) -> list[float]:
        from .comm import MPI_MAX

        return self._together(values, MPI_MAX)

    def _together(self, values: list[float], operation: Any) -> list[float]:
        import torch

        from .comm import COMM_WORLD

        return COMM_WORLD.Allreduce(torch.tensor(values, dtype=torch.float64), operation).tolist()


class Training:
    """`items` is what is counted, `measures` the figures that `measure` gives, with their titles.  `together` is for programs
    whose ranks meet in every batch: all have equally many, and stop after the same one.

    `history` has an entry for each epoch: epoch, loss, seconds, items_per_s, local, moved, copies, and the measures (None
    where they were not taken).
    """

    def __init__(self, options: argparse.Namespace, params: Parameters, worker: Worker, *, name: str, items: str,
                 measures: dict[str, str], together: bool = False, ranks: Optional[Ranks] = None) -> None:
        self.ranks = ranks or Ranks()
        self.options, self.params, self.worker, self.items, self.measures = options, params, worker, items, measures
        self.name, self.together, self.history = name, together, []
        self._asked_to_stop = False  # this rank; that all stop is agreed on at the end of an epoch
        self.directory = options.output or Path(name)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._before = signal.signal(signal.SIGINT, self._ask_to_stop)
        self.first = self._resume() if options.resume else 1

    def epochs(self, batches: Batches, n_batches: int, measure: Callable[[], dict[str, float]]) -> bool:
        """Train the epochs that are left.  Returns False if it was stopped before the end."""
        options = self.options
        say(self._head())
        for epoch in range(self.first, options.epochs + 1):
            stop, seen = self._train(epoch, batches, n_batches)
            taken = not stop and (epoch % options.evaluate_every == 0 or epoch == options.epochs)
            seen.update(measure() if taken else dict.fromkeys(self.measures))
            say(self._line(seen))
            if stop:
                self.save(epoch - 1)
                say(f"stopped in epoch {epoch}; what is trained is in {self.directory}; go on with --resume")
                return False
            self.history.append(seen)
            if epoch % options.save_every == 0 or epoch == options.epochs:
                self.save(epoch)
        return True

    def save(self, epoch: int) -> None:
        """A checkpoint: the vectors, and how they came about."""
        self.params.save(self.directory / "checkpoint", meta={"epoch": epoch, "history": self.history})
        if speaks():
            (self.directory / "history.json").write_text(json.dumps(self.history, indent=1))

    def end(self) -> None:
        """Draw what happened, and let Ctrl-C be what it was."""
        signal.signal(signal.SIGINT, self._before)
        if not self.history or not speaks():
            return
        epochs = [seen["epoch"] for seen in self.history]
        panels = [Curve("loss", epochs, [seen["loss"] for seen in self.history])]
        panels += [Curve(f"{title}, validation", epochs, [seen[name] for seen in self.history])
                   for name, title in self.measures.items()]
        panels.append(Curve("local accesses, %", epochs, [100 * seen["local"] for seen in self.history], (0, 102)))
        size = self.ranks.size
        curves(panels, f"{self.name}, {size} process{'es' * (size > 1)}", self.directory / "training.png")

    # ---- within ------------------------------------------------------------------------------------------------

    def _ask_to_stop(self, *_: Any) -> None:
        self._asked_to_stop = True

    def _stops(self) -> bool:
        """After this batch.  Ctrl-C does not reach all ranks in the same one."""
        if self.together and self.ranks.size > 1:
            return self.ranks.largest([self._asked_to_stop])[0] > 0
        return self._asked_to_stop

    def _resume(self) -> int:
        meta = self.params.load(self.directory / "checkpoint")
        self.history = meta["history"]
        say(f"going on after epoch {meta['epoch']}")
        return meta["epoch"] + 1

    def _train(self, epoch: int, batches: Batches, n_batches: int) -> tuple[bool, dict[str, Any]]:
        """Returns whether anybody was asked to stop, and what is to be known of the epoch."""
        before, own, start = self.params.stats(total=True), self.params.stats(), time.monotonic()
        bar, losses, items, n = Bar(f"epoch {epoch:>3}", n_batches), 0.0, 0, 0
        for loss, size in batches(epoch):
            losses, items, n = losses + loss, items + size, n + 1
            if bar.due():
                now, speed = _accesses(own, self.params.stats()), items * self.ranks.size / (time.monotonic() - start)
                bar.text = (f"{speed:>9,.0f} {self.items}/s   loss {losses / n:.4f}   {now['local']:.1%} local   "
                            f"{now['moved']:,} moved   {now['copies']:,} copies")
            bar.advance()
            if self._stops():
                break
        bar.clear()
        in_step(self.worker)
        seconds, stop = self.ranks.largest([time.monotonic() - start, self._asked_to_stop])
        losses, items, n = self.ranks.sums([losses, items, n])
        return stop > 0, {"epoch": epoch, "loss": losses / max(1, n), "seconds": seconds, "items_per_s": items / seconds,
                **_accesses(before, self.params.stats(total=True))}

    def _columns(self) -> list[tuple[str, str, Callable[[dict[str, Any]], str]]]:
        """Title, width, text of each column of the lines."""
        def measured(name: str) -> Callable[[dict[str, Any]], str]:
            return lambda seen: "" if seen[name] is None else f"{seen[name]:.4f}"
        return [("epoch", "6", lambda seen: str(seen["epoch"])), ("loss", "10", lambda seen: f"{seen['loss']:.4f}"),
                (f"{self.items}/s", "12", lambda seen: f"{seen['items_per_s']:,.0f}"),
                ("local", "8", lambda seen: f"{seen['local']:.1%}"), ("moved", "11", lambda seen: f"{seen['moved']:,}"),
                ("copies", "11", lambda seen: f"{seen['copies']:,}"),
                *((title, "8", measured(name)) for name, title in self.measures.items()),
                ("seconds", "8", lambda seen: f"{seen['seconds']:.1f}")]

    def _head(self) -> str:
        return " ".join(f"{title:>{width}}" for title, width, _ in self._columns())

    def _line(self, seen: dict[str, Any]) -> str:
        return " ".join(f"{text(seen):>{width}}" for _, width, text in self._columns())


def _accesses(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What was accessed in between, and what Godwit did for it."""
    new = {name: after[name] - before[name] for name in ("keys_pulled", "keys_pushed", "keys_remote", "moves", "grants")}
    return {"local": 1 - new["keys_remote"] / max(1, new["keys_pulled"] + new["keys_pushed"]), "moved": new["moves"],
            "copies": new["grants"]}
