"""Whole memory: tensors that every rank of a group sees as one, wherever their rows lie.

    import torch
    from godwit import memory

    with memory.zeros((1000, 64)) as table:               # collective
        table.local[:] = torch.arange(table.local_start, table.local_start + len(table.local)).unsqueeze(1)
        table.comm.Barrier()                              # now all rows are written
        rows = table.gather([0, 999, 5])                  # of any rank
        assert rows[:, 0].tolist() == [0.0, 999.0, 5.0]

The first dimension is cut into parts, one for each rank.  There are three kinds:

    continuous   one mapping, the same bytes for all ranks of a node: torch() and numpy() show it
    chunked      one mapping for each rank: chunk(rank) shows it
    distributed  rows of ranks on other nodes are reached by messages

What is collective is called by all ranks of the group, in the same order: opening, fill_,
copy_, load, save, requires_grad_; and, of a distributed memory whose group spans nodes, gather,
scatter and scatter_add too.  All else is done in place and waits for nobody.
"""

from .tensor import KINDS, Memory, empty, from_file, zeros

__all__ = ["KINDS", "Memory", "empty", "from_file", "zeros"]
