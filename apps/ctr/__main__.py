"""Foretelling clicks on many processes: a factorisation machine, or a model like DLRM.

    godwit run -n 4 apps/ctr --generate                  made-up clicks by a known model: no data needed
    godwit run -n 4 apps/ctr --clicks FILE               Criteo's format
    godwit run -n 4 --node-size 1 apps/ctr ...           as if every process were a machine of its own
    python apps/ctr --generate --reference               the same in plain PyTorch, to compare with

The embedding of the categories is in godwit.Parameters, and its rows go to where they are used.  The dense part, which
everybody uses all the time, is on every rank; gradients are added up by godwit.comm.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace

import reference
import torch
from clicks import N_FIELDS, N_NUMBERS, Clicks, generate, read
from models import MODELS
from train import Dense, quality, train_epoch

import godwit
from godwit import training
from godwit.comm import COMM_WORLD as comm
from godwit.show import say


def parse_options() -> argparse.Namespace:
    parser = training.options("ctr", __doc__.split("\n\n")[0], epochs=4, evaluate_every=1, save_every=1)
    data = parser.add_argument_group("data")
    data.add_argument("--clicks", type=Path, metavar="FILE", help="lines of a label, 13 integers and 26 categories between tabs; "
                      "any may be missing but the label")
    data.add_argument("--test", type=Path, metavar="FILE", help="such lines for testing; without: the last ones of --clicks")
    data.add_argument("--held-out", type=float, default=0.1, metavar="SHARE", help="of lines, for testing")
    data.add_argument("--generate", action="store_true", help="make clicks up, by a model that is known")
    data.add_argument("--n", type=int, default=200_000, help="made-up examples")
    data.add_argument("--values", type=int, default=300, help="of the largest field of made-up examples")
    model = parser.add_argument_group("model")
    model.add_argument("--model", choices=MODELS, default="fm")
    model.add_argument("--rows", type=int, default=100_000, help="of the embedding, into which all values are hashed")
    model.add_argument("--dim", type=int, default=8, help="entries of a row, beside its weight")
    model.add_argument("--hidden", type=int, default=64, help="units of dlrm's hidden layers")
    model.add_argument("--batch", type=int, default=1024, help="examples, of all processes together")
    model.add_argument("--optimizer", choices=list(reference.OPTIMIZERS), default="adagrad")
    model.add_argument("--lr", type=float, default=0.01)
    model.add_argument("--reference", action="store_true", help="train in plain PyTorch; one process, no checkpoint")
    options = training.parse(parser)
    if options.generate == (options.clicks is not None):
        parser.error("give either --clicks FILE or --generate")
    training.at_least(parser, options, rows=1, dim=1, hidden=1, batch=1, n=100, values=4)
    if not 0 < options.held_out < 1:
        parser.error(f"--held-out {options.held_out}: it must be between 0 and 1")
    return options


def load(options: argparse.Namespace) -> Clicks:
    place = {"rank": comm.rank, "size": comm.size}
    if options.generate:
        return generate(options.n, options.values, options.rows, options.held_out, options.seed, **place)
    return read(options.clicks, options.test, options.rows, options.held_out, **place)


def open_job(options: argparse.Namespace, clicks: Clicks, n_train: int) -> SimpleNamespace:
    """Model, and embedding with its first values."""
    torch.manual_seed(options.seed)
    model = MODELS[options.model](N_NUMBERS, N_FIELDS, options.dim, options.hidden)
    optimizer = godwit.optim.by_name(options.optimizer, lr=options.lr)
    dense = Dense(model, optimizer)
    lengths = torch.full((options.rows + 1,), optimizer.length(options.dim + 1))
    lengths[options.rows] = dense.row.numel()
    params = godwit.Parameters(num_keys=options.rows + 1, lengths=lengths)
    worker = params.worker()
    embedding = godwit.nn.Embedding(params, options.rows, options.dim + 1, worker=worker, optimizer=optimizer)
    worker.begin_setup()
    embedding.reset(first_values, seed=options.seed, part=comm.rank, parts=comm.size)
    dense.write(worker, options.rows)
    worker.end_setup()
    return SimpleNamespace(options=options, clicks=clicks, model=model, dense=dense, dense_key=options.rows, params=params,
                           worker=worker, embedding=embedding, n_train=n_train,
                           announces=options.ahead > 0 and godwit.world().nodes > 1)


def first_values(weights: torch.Tensor, chance: torch.Generator) -> None:
    weights.normal_(std=0.05, generator=chance)
    weights[:, -1] = 0


def train(job: SimpleNamespace) -> None:
    run = training.Training(job.options, job.params, job.worker, name=f"ctr-{job.clicks.name}", items="examples",
                            measures={"auc": "AUC"}, together=True)
    job.dense.read(job.worker, job.dense_key)             # as it began, or as a checkpoint has it
    if run.epochs(lambda epoch: train_epoch(job, epoch), -(-job.n_train // job.options.batch),
                  lambda: quality(job, job.embedding.read)):
        say(f"\ntest AUC {run.history[-1]['auc']:.4f}")
    run.end()


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    world = godwit.init()
    if options.reference and comm.size > 1:
        raise SystemExit(f"--reference is for one process; here are {comm.size}")
    clicks = load(options)
    sizes = comm.Allreduce(torch.tensor([len(clicks.train), len(clicks.test), int(clicks.test.labels.sum())])).tolist()
    if sizes[2] in (0, sizes[1]):
        raise SystemExit(f"{sizes[2]} of the {sizes[1]} examples for testing were clicked on; both kinds are needed")
    job = open_job(options, clicks, sizes[0])
    best = f", best possible AUC {clicks.best:.4f}" if clicks.best is not None else ""
    say(f"{clicks.name}: {sizes[0]:,} / {sizes[1]:,} examples{best}\n{options.model}, dim {options.dim}, {options.optimizer}, "
        f"{comm.size} process{'es' * (comm.size > 1)} on {world.nodes} node{'s' * (world.nodes > 1)}")
    reference.train(job) if options.reference else train(job)
    job.worker.close()
    job.params.close()
    godwit.finalize()


if __name__ == "__main__":
    main()
