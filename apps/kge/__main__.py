"""Knowledge-graph embeddings on many processes: ComplEx, DistMult, TransE and RotatE.

    godwit run -n 4 apps/kge --generate                  a made-up graph with rules: no data needed
    godwit run -n 4 apps/kge --dataset DIR               train.txt, valid.txt, test.txt: three columns between tabs
    torchrun --nproc-per-node 4 apps/kge/__main__.py ... or mpirun -n 4 python apps/kge ..., or python apps/kge alone
    godwit run -n 4 --node-size 1 apps/kge ...           as if every process were a machine of its own

Embeddings of entities and relations are in godwit.Parameters, each with its optimizer's state, and all processes
train them at once.  Batches are announced before they are used, so that on several nodes rows are there in time.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from graph import ORDERS, generate, read
from models import MODELS
from ranking import Known, evaluate
from show import HEAD, Bar, line, picture, results, say
from train import shares, train_epoch

import godwit
from godwit.comm import COMM_WORLD as comm, MPI_MAX


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kge", description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--config", type=Path, help="a JSON file with values for the options below")
    data = parser.add_argument_group("data")
    data.add_argument("--dataset", type=Path, metavar="DIR", help="a directory with train.txt, valid.txt and test.txt")
    data.add_argument("--order", choices=["auto", *ORDERS], default="auto", help="of head, relation, tail in a line")
    data.add_argument("--generate", action="store_true", help="make a graph up, with rules that can be learned")
    data.add_argument("--entities", type=int, default=2000, help="of the graph that is made up")
    model = parser.add_argument_group("model")
    model.add_argument("--model", choices=MODELS, default="complex")
    model.add_argument("--dim", type=int, default=64, help="entries of an entity's row; half of them are imaginary parts "
                       "with complex and rotate")
    model.add_argument("--gamma", type=float, default=6.0, help="margin of transe and rotate")
    model.add_argument("--reciprocal", action="store_true", help="a relation and its reverse have rows of their own")
    loss = parser.add_argument_group("training")
    loss.add_argument("--epochs", type=int, default=20)
    loss.add_argument("--batch", type=int, default=512, help="triples")
    loss.add_argument("--one-vs-all", action="store_true", help="compare with all entities; for small graphs")
    loss.add_argument("--negatives", type=int, default=100, help="sampled entities to compare with, for each batch; "
                      "0: those of the batch")
    loss.add_argument("--negatives-by", choices=["uniform", "degree"], default="uniform", help="degree: ^0.75")
    loss.add_argument("--sampling", choices=["naive", "preloc", "pool", "local"], default="preloc", help="scheme")
    loss.add_argument("--adversarial", type=float, default=0.0, metavar="TEMPERATURE",
                      help="self-adversarial weighting of negatives; 0: softmax")
    loss.add_argument("--optimizer", choices=["sgd", "adagrad", "adam"], default="adagrad")
    loss.add_argument("--lr", type=float, default=0.1)
    loss.add_argument("--n3", type=float, default=0.0, help="strength of N3 regularisation")
    loss.add_argument("--l2", type=float, default=0.0, help="strength of L2 regularisation")
    loss.add_argument("--ahead", type=int, default=10, help="batches that are announced ahead; 0: none")
    loss.add_argument("--seed", type=int, default=0)
    loss.add_argument("--threads", type=int, default=1, help="of PyTorch, for each process")
    out = parser.add_argument_group("output")
    out.add_argument("--evaluate-every", type=int, default=5, metavar="EPOCHS", help="on validation triples")
    out.add_argument("--output", type=Path, metavar="DIR", help="for checkpoint, history and picture; "
                     "default: kge-NAME")
    out.add_argument("--save-every", type=int, default=5, metavar="EPOCHS", help="a checkpoint")
    out.add_argument("--resume", action="store_true", help="go on from the checkpoint in --output")
    known, _ = parser.parse_known_args()
    if known.config is not None:
        parser.set_defaults(**load_config(parser, known.config))
    options = parser.parse_args()
    if options.generate == (options.dataset is not None):
        parser.error("give either --dataset DIR or --generate")
    return options


def load_config(parser: argparse.ArgumentParser, path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        parser.error(f"--config {path}: {error}")
    known = {action.dest for action in parser._actions}
    config = {name.replace("-", "_"): value for name, value in config.items()}
    if unknown := sorted(set(config) - known):
        parser.error(f"--config {path}: there is no option {', '.join(unknown)}")
    return config


def open_job(options: argparse.Namespace) -> SimpleNamespace:
    """Graph, model, and embeddings with their first values."""
    graph = generate(options.entities, options.seed) if options.generate else read(options.dataset, options.order)
    model = MODELS[options.model](options.dim, options.gamma)
    optimizer = godwit.optim.by_name(options.optimizer, lr=options.lr)
    n_entities, n_rows = len(graph.entities), len(graph.relations) * (2 if options.reciprocal else 1)
    lengths = torch.full((n_entities + n_rows,), optimizer.length(model.dim))
    lengths[n_entities:] = optimizer.length(model.relation_dim)
    params = godwit.Parameters(num_keys=n_entities + n_rows, lengths=lengths)
    samples = options.negatives > 0 and not options.one_vs_all
    if samples:
        weights = torch.bincount(graph.train[:, [0, 2]].reshape(-1), minlength=n_entities).double() ** 0.75
        params.enable_sampling(scheme=options.sampling, max=n_entities, seed=options.seed,
                               **({"weights": weights} if options.negatives_by == "degree" else {}))
    worker = params.worker()
    shared = {"worker": worker, "optimizer": optimizer}
    entities = godwit.nn.Embedding(params, n_entities, model.dim, **shared)
    relations = godwit.nn.Embedding(params, n_rows, model.relation_dim, first_key=n_entities, **shared)
    worker.begin_setup()
    for embedding in (entities, relations):
        embedding.reset(first_values(options), seed=options.seed, part=comm.rank, parts=comm.size)
    worker.end_setup()
    known = Known(torch.cat([graph.train, graph.valid, graph.test]), len(graph.relations))
    return SimpleNamespace(options=options, graph=graph, model=model, params=params, worker=worker, entities=entities,
                           relations=relations, known=known, samples=samples, reciprocal=options.reciprocal,
                           everybody=torch.arange(n_entities), history=[], stop=False)


def first_values(options: argparse.Namespace):
    """Small for models that multiply; for the others as wide as the margin asks for."""
    if options.model in ("complex", "distmult"):
        return lambda rows, chance: rows.normal_(std=0.1, generator=chance)
    width = (options.gamma + 2) / options.dim
    return lambda rows, chance: rows.uniform_(-width, width, generator=chance)


def in_step(worker: godwit.Worker) -> None:
    """Until everybody sees what everybody has pushed."""
    worker.wait_all()
    worker.wait_sync()
    worker.barrier()
    worker.wait_sync()


def quality(job: SimpleNamespace, triples: torch.Tensor):
    return evaluate(job.model, job.entities, job.relations, job.reciprocal, triples, job.known)


def run_epoch(job: SimpleNamespace, epoch: int) -> bool:
    """Train, look, and note down.  Returns whether anybody was told to stop, which all ranks agree on."""
    options, before, start = job.options, job.params.stats(total=True), time.monotonic()
    bar, losses = Bar(f"epoch {epoch:>3}", len(shares(job, epoch))), []
    for loss in train_epoch(job, epoch):
        losses.append(loss)
        speed = len(losses) * options.batch * comm.size / (time.monotonic() - start)
        bar.advance(f"{speed:>9,.0f} triples/s   loss {sum(losses) / len(losses):.4f}")
        if job.stop:
            break
    bar.clear()
    in_step(job.worker)
    after = job.params.stats(total=True)
    seconds, stop = comm.Allreduce(torch.tensor([time.monotonic() - start, job.stop], dtype=torch.float64), MPI_MAX).tolist()
    counted = comm.Allreduce(torch.tensor([sum(losses), len(losses)], dtype=torch.float64))
    new = {name: after[name] - before[name] for name in ("keys_pulled", "keys_pushed", "keys_remote", "moves", "grants")}
    measure = epoch % options.evaluate_every == 0 or epoch == options.epochs
    job.history.append({
        "epoch": epoch, "loss": (counted[0] / counted[1].clamp(min=1)).item(), "seconds": seconds,
        "triples_per_s": counted[1].item() * options.batch / seconds,
        "local": 1 - new["keys_remote"] / max(1, new["keys_pulled"] + new["keys_pushed"]),
        "moved": new["moves"], "copies": new["grants"],
        "mrr": quality(job, job.graph.valid).mrr if measure and not stop else None})
    say(line(job.history[-1]))
    return stop > 0


def save(job: SimpleNamespace, epoch: int, directory: Path) -> None:
    job.params.save(directory / "checkpoint", meta={"epoch": epoch, "history": job.history})
    if comm.rank == 0:
        (directory / "history.json").write_text(json.dumps(job.history, indent=1))


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    godwit.init()
    job = open_job(options)
    directory = options.output or Path(f"kge-{job.graph.name}")
    directory.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGINT, lambda *_: setattr(job, "stop", True))
    say(f"{job.graph}\n{options.model}, dim {options.dim}, {comm.size} process{'es' * (comm.size > 1)}")
    first = 1
    if options.resume:
        meta = job.params.load(directory / "checkpoint")
        first, job.history = meta["epoch"] + 1, meta["history"]
        say(f"going on after epoch {first - 1}")
    say(HEAD)
    for epoch in range(first, options.epochs + 1):
        stop = run_epoch(job, epoch)
        if stop or epoch % options.save_every == 0 or epoch == options.epochs:
            save(job, epoch if not stop else epoch - 1, directory)
        if stop:
            say(f"stopped in epoch {epoch}; what is trained is in {directory}; go on with --resume")
            break
    else:
        results({"valid": quality(job, job.graph.valid), "test": quality(job, job.graph.test)})
    picture(job.history, f"{job.graph.name}, {options.model}, {comm.size} processes", directory / "training.png")
    job.worker.close()
    job.params.close()
    godwit.finalize()


if __name__ == "__main__":
    main()
