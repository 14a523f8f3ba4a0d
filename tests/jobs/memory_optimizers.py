"""The optimizers of rows against torch.optim with one parameter for each row, stepped only when it is touched.

    godwit run -n 4 memory_optimizers.py STEPS

Then rows and state are saved, loaded again, and go on as if nothing had been.
"""

import os
import sys
import tempfile

import numpy as np
import torch

import godwit
from godwit import nn
from godwit.comm import COMM_WORLD

ROWS, COLUMNS = 23, 5
OPTIMIZERS = {
    "SGD": (nn.SGD, torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.02}),
    "AdaGrad": (nn.AdaGrad, torch.optim.Adagrad,
                {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.01, "initial_accumulator_value": 0.1}),
    "RMSProp": (nn.RMSProp, torch.optim.RMSprop, {"lr": 0.02, "alpha": 0.9, "weight_decay": 0.01}),
    "LazyAdam": (nn.LazyAdam, torch.optim.Adam, {"lr": 0.02, "betas": (0.8, 0.97), "weight_decay": 0.01}),
    "LazyAdam without decay": (nn.LazyAdam, torch.optim.Adam, {"lr": 0.01}),
}


def draw_batches(draw, size):
    """Rows and weights of every rank in a step: duplicates, and now and then nothing at all."""
    batches = []
    for _ in range(size):
        rows = draw.integers(0, ROWS, int(draw.integers(0, 12)))
        batches.append((torch.from_numpy(rows), torch.from_numpy(draw.standard_normal((len(rows), COLUMNS)))))
    return batches


def loss_of(rows, weights):
    return (rows * weights.to(rows.dtype)).sum() + (rows ** 2).sum() / 2


class Reference:
    def __init__(self, make, settings, weight):
        self.rows = [torch.nn.Parameter(row.clone()) for row in weight]
        self.optimizers = [make([row], **settings) for row in self.rows]

    def step(self, batches):
        for row in self.rows:
            row.grad = None
        losses = [loss_of(torch.stack([self.rows[r] for r in rows.tolist()]), weights)
                  for rows, weights in batches if len(rows)]
        if losses:
            sum(losses).backward()
        for row, optimizer in zip(self.rows, self.optimizers):
            if row.grad is not None:
                optimizer.step()


def compare(name, embedding, reference, tolerance):
    found = embedding.weight.gather(torch.arange(ROWS))
    worst = max((found[r] - row.detach()).abs().max().item() for r, row in enumerate(reference.rows))
    assert worst < tolerance, f"{name}: {worst}"
    return worst


def check(name, dtype, kind, steps, directory):
    ours, theirs, settings = OPTIMIZERS[name]
    tolerance = 1e-10 if dtype is torch.float64 else 1e-5
    embedding = nn.WholeEmbedding(ROWS, COLUMNS, dtype, kind)
    optimizer = ours(embedding, **settings)
    start = embedding.weight.gather(torch.arange(ROWS))
    reference = Reference(theirs, settings, start)
    draw = np.random.default_rng(5)
    for step in range(steps):
        if step == steps // 2:  # save, forget everything, load with other parts
            optimizer.save(directory)
            optimizer.close()
            embedding.close()
            parts = [0] * COMM_WORLD.size
            parts[-1] = ROWS
            embedding = nn.WholeEmbedding(ROWS, COLUMNS, dtype, kind, rows_per_rank=parts)
            optimizer = ours(embedding, **settings)
            optimizer.load(directory)
        batches = draw_batches(draw, COMM_WORLD.size)
        rows, weights = batches[COMM_WORLD.rank]
        values = embedding(rows)
        if len(rows):
            loss_of(values, weights).backward()
        optimizer.step()
        reference.step(batches)
    worst = compare(f"{name} {dtype}", embedding, reference, tolerance)
    optimizer.close()
    embedding.close()
    return worst


def main():
    steps = int(sys.argv[1])
    torch.set_num_threads(1)
    world = godwit.init()
    kind = "continuous" if world.nodes == 1 else "distributed"
    name = torch.zeros(4096, dtype=torch.uint8)
    if world.rank == 0:
        made = tempfile.mkdtemp().encode()
        name[:len(made)] = torch.tensor(list(made), dtype=torch.uint8)
    directory = bytes(COMM_WORLD.Bcast_(name, 0).tolist()).rstrip(b"\0").decode()
    for optimizer in OPTIMIZERS:
        for dtype in (torch.float32, torch.float64):
            worst = check(optimizer, dtype, kind, steps, directory)
            if world.rank == 0:
                print(f"{optimizer} {dtype}: {worst:.1e}", flush=True)
    COMM_WORLD.Barrier()
    if world.rank == 0:
        for file in os.listdir(directory):
            os.unlink(os.path.join(directory, file))
        os.rmdir(directory)
    print("passed")


if __name__ == "__main__":
    main()
