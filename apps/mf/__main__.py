"""Matrix factorisation with biases on many processes, by parameter blocking or by intent.

    godwit run -n 4 apps/mf --generate                   made-up ratings of known noise: no data needed
    godwit run -n 4 apps/mf --ratings FILE               lines of user, item, rating
    godwit run -n 4 --node-size 1 apps/mf ...            as if every process were a machine of its own
    godwit run -n 4 --node-size 1 apps/mf --generate --compare     both modes, and no announcing, in one table

A user's row in godwit.Parameters has some factors and a bias, and so has an item's; behind them is the optimizer's state.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from types import SimpleNamespace

import torch
from ratings import Ratings, generate, read
from train import deal, rmse, train_epoch

import godwit
from godwit import training
from godwit.comm import COMM_WORLD as comm
from godwit.show import say, table

WAYS = {"blocks": ("blocks", None), "intent": ("intent", None), "nothing announced": ("intent", 0)}  # mode, --ahead


def parse_options() -> argparse.Namespace:
    parser = training.options("mf", __doc__.split("\n\n")[0], epochs=8, evaluate_every=1)
    data = parser.add_argument_group("data")
    data.add_argument("--ratings", type=Path, metavar="FILE", help="lines of user, item and rating between white space")
    data.add_argument("--test", type=Path, metavar="FILE", help="such lines for testing; without: some of --ratings")
    data.add_argument("--held-out", type=float, default=0.1, metavar="SHARE", help="of ratings, for testing")
    data.add_argument("--generate", action="store_true", help="make ratings up, of factors and noise")
    data.add_argument("--users", type=int, default=3000, help="of the ratings that are made up")
    data.add_argument("--items", type=int, default=1000)
    data.add_argument("--n", type=int, default=1_000_000, help="made-up ratings")
    data.add_argument("--noise", type=float, default=0.5, help="of made-up ratings; their signal is 1")
    data.add_argument("--zipf", type=float, default=0.8, help="the i-th user or item is as frequent as 1 / i^ZIPF")
    model = parser.add_argument_group("model")
    model.add_argument("--mode", choices=["intent", "blocks"], default="intent")
    model.add_argument("--rank", type=int, default=4, help="factors")
    model.add_argument("--batch", type=int, default=2048, help="ratings")
    model.add_argument("--optimizer", choices=["sgd", "adagrad"], default="adagrad")
    model.add_argument("--lr", type=float, default=0.1)
    model.add_argument("--decay", type=float, default=0.0, help="in epoch e the learning rate is LR / (1 + DECAY (e - 1))")
    model.add_argument("--l2", type=float, default=0.02, help="strength of regularisation, for each rating")
    model.add_argument("--compare", action="store_true", help="train in both modes, and without announcing, and compare")
    options = training.parse(parser)
    if options.generate == (options.ratings is not None):
        parser.error("give either --ratings FILE or --generate")
    if options.compare and options.resume:
        parser.error("--compare begins anew; it cannot --resume")
    training.at_least(parser, options, users=1, items=1, n=1, rank=1, batch=1)
    if not 0 < options.held_out < 1:
        parser.error(f"--held-out {options.held_out}: it must be between 0 and 1")
    return options


def load(options: argparse.Namespace) -> Ratings:
    if not options.generate:
        return read(options.ratings, options.test, options.held_out, options.seed)
    return generate(options.users, options.items, options.n, options.rank, options.noise, options.zipf, options.held_out,
                    options.seed)


def open_job(options: argparse.Namespace, ratings: Ratings) -> SimpleNamespace:
    """Rows with their first values, and this rank's share of the ratings."""
    n_users, n_rows, train = ratings.n_users, ratings.n_users + ratings.n_items, ratings.train
    optimizer = godwit.optim.by_name(options.optimizer, lr=options.lr)
    params = godwit.Parameters(num_keys=n_rows, lengths=optimizer.length(options.rank + 1))
    worker = params.worker()
    rows = godwit.nn.Embedding(params, n_rows, options.rank + 1, worker=worker, optimizer=optimizer)
    worker.begin_setup()
    rows.reset(lambda weights, chance: weights.normal_(std=0.1, generator=chance), seed=options.seed, part=comm.rank,
               parts=comm.size)
    worker.end_setup()

    part_of_user, block_of_item = deal(train.users, n_users, comm.size), deal(train.items, ratings.n_items, comm.size)
    mine = train[part_of_user[train.users] == comm.rank]
    blocks = [(n_users + torch.nonzero(block_of_item == block).view(-1), mine[block_of_item[mine.items] == block])
              for block in range(comm.size)] if options.mode == "blocks" else []
    return SimpleNamespace(
        options=options, params=params, worker=worker, rows=rows, optimizer=optimizer, mine=mine, blocks=blocks,
        my_users=torch.nonzero(part_of_user == comm.rank).view(-1), mean=train.values.mean(),
        announces=options.ahead > 0 and godwit.world().nodes > 1,
        keys=lambda part: torch.stack([part.users, n_users + part.items]))


def train(options: argparse.Namespace, ratings: Ratings) -> list[dict]:
    """Train one model; what happened in its epochs."""
    job = open_job(options, ratings)
    run = training.Training(options, job.params, job.worker, name=f"mf-{ratings.name}", items="ratings",
                            measures={"rmse": "RMSE"})
    if run.epochs(lambda epoch: train_epoch(job, epoch), -(-len(job.mine) // options.batch),
                  lambda: {"rmse": rmse(job, ratings.test)}):
        above = f", {run.history[-1]['rmse'] / ratings.floor - 1:.1%} above the noise" if ratings.floor else ""
        say(f"\ntest RMSE {run.history[-1]['rmse']:.4f}{above}")
    run.end()
    job.worker.close()
    job.params.close()
    return run.history


def compare(options: argparse.Namespace, ratings: Ratings) -> None:
    rows = []
    for way, (mode, ahead) in WAYS.items():
        say(f"\n{way}")
        output = (options.output or Path(f"mf-{ratings.name}")) / way.replace(" ", "-")
        changed = {"mode": mode, "output": output} | ({} if ahead is None else {"ahead": ahead})
        history = train(argparse.Namespace(**(vars(options) | changed)), ratings)
        if len(history) < options.epochs:
            return                                       # Ctrl-C
        speed, local, moved, copies = (statistics.median(epoch[name] for epoch in history)
                                       for name in ("items_per_s", "local", "moved", "copies"))
        error = history[-1]["rmse"]
        above = f"{error / ratings.floor - 1:.1%}" if ratings.floor else ""
        rows.append([way, f"{speed:,.0f}", f"{local:.1%}", f"{moved:,.0f}", f"{copies:,.0f}", f"{error:.4f}", above])
    say("\nmedians of the epochs\n" + table(["", "ratings/s", "local", "moved", "copies", "test RMSE", "above noise"], rows))


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    world = godwit.init()
    ratings = load(options)
    say(f"{ratings}\nrank {options.rank}, {options.optimizer}, {comm.size} process{'es' * (comm.size > 1)} on {world.nodes} "
        f"node{'s' * (world.nodes > 1)}")
    compare(options, ratings) if options.compare else train(options, ratings)
    godwit.finalize()


if __name__ == "__main__":
    main()
