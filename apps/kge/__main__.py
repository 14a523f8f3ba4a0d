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
from pathlib import Path
from types import SimpleNamespace

import torch
from graph import ORDERS, generate, read
from models import MODELS
from ranking import Known, evaluate
from train import announced, train_epoch

import godwit
from godwit import training
from godwit.comm import COMM_WORLD as comm
from godwit.show import say, table


def parse_options() -> argparse.Namespace:
    parser = training.options("kge", __doc__.split("\n\n")[0])
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
    loss = parser.add_argument_group("loss")
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
    options = training.parse(parser)
    if options.generate == (options.dataset is not None):
        parser.error("give either --dataset DIR or --generate")
    training.at_least(parser, options, entities=20, dim=1, batch=1, negatives=0)
    return options


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
                           everybody=torch.arange(n_entities),
                           n_batches=len(range(comm.rank, -(-len(graph.train) // options.batch), comm.size)))


def first_values(options: argparse.Namespace):
    """Small for models that multiply; for the others as wide as the margin asks for."""
    if options.model in ("complex", "distmult"):
        return lambda rows, chance: rows.normal_(std=0.1, generator=chance)
    width = (options.gamma + 2) / options.dim
    return lambda rows, chance: rows.uniform_(-width, width, generator=chance)


def quality(job: SimpleNamespace, triples: torch.Tensor):
    return evaluate(job.model, job.entities, job.relations, job.reciprocal, triples, job.known)


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    godwit.init()
    job = open_job(options)
    say(f"{job.graph}\n{options.model}, dim {options.dim}, {comm.size} process{'es' * (comm.size > 1)}")
    run = training.Training(options, job.params, job.worker, name=f"kge-{job.graph.name}", items="triples",
                            measures={"mrr": "MRR"})
    batches = announced(job, run.first)
    if run.epochs(lambda _: train_epoch(job, batches), job.n_batches, lambda: {"mrr": quality(job, job.graph.valid).mrr}):
        parts = {"valid": job.graph.valid, "test": job.graph.test}
        say("\n" + table(["", "MRR", "Hits@1", "Hits@3", "Hits@10"],
                         [[name, *quality(job, triples).texts()] for name, triples in parts.items()]))
    run.end()
    job.worker.close()
    job.params.close()
    godwit.finalize()


if __name__ == "__main__":
    main()
