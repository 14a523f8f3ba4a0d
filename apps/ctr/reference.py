"""reference.py - the same model in plain PyTorch, on one process: what the distributed one is compared with."""

from __future__ import annotations

import time
from types import SimpleNamespace

import torch
from train import batches, loss_of, quality

from godwit.show import say

OPTIMIZERS = {"sgd": (torch.optim.SGD, torch.optim.SGD), "adagrad": (torch.optim.Adagrad, torch.optim.Adagrad),
              "adam": (torch.optim.SparseAdam, torch.optim.Adam)}  # of the embedding, of the dense part


def train(job: SimpleNamespace) -> None:
    """From the same first values through the same batches."""
    options = job.options
    torch.sparse.check_sparse_tensor_invariants.disable()  # PyTorch's own gradients are fine; else it warns
    first = job.embedding.read(torch.arange(job.embedding.num_embeddings))
    embedding = torch.nn.Embedding.from_pretrained(first.clone(), freeze=False, sparse=True)
    kinds = OPTIMIZERS[options.optimizer]
    optimizers = [kinds[0](embedding.parameters(), lr=options.lr), kinds[1](job.model.parameters(), lr=options.lr)]
    say(f"plain PyTorch\n{'epoch':>6} {'loss':>10} {'examples/s':>12} {'AUC':>8} {'seconds':>8}")
    for epoch in range(1, options.epochs + 1):
        start, losses = time.monotonic(), 0.0
        for batch in batches(job, epoch):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = loss_of(job.model, embedding, batch)
            (loss / options.batch).backward()
            for optimizer in optimizers:
                optimizer.step()
            losses += loss.item()
        seconds, n = time.monotonic() - start, len(job.clicks.train)
        area = quality(job, embedding)["auc"]
        say(f"{epoch:>6} {losses / n:>10.4f} {n / seconds:>12,.0f} {area:>8.4f} {seconds:>8.1f}")
    say(f"\ntest AUC {area:.4f}")
