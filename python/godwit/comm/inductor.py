"""Keeps operators in their order in the code that torch.compile's inductor writes.

PyTorch threads a token through operators that are registered as effects, but
its inductor (seen in 2.13) notes the dependencies that follow under names by which its
scheduler does not look for them, and then moves one call before another: ranks
whose code differs would wait for each other.  So the operators get lowerings of
their own here, which note the same dependency under the right name.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch

_operators: list[Any] = []
_done: set[Any] = set()


def keep_order_of(operator: Any) -> None:
    _operators.append(operator)


def prepare() -> None:
    """Called while a graph is traced.  If inductor is there by then, it is going to compile it."""
    lowering = sys.modules.get("torch._inductor.lowering")
    if lowering is None or len(_done) == len(_operators):
        return
    for operator in _operators:
        if operator not in _done:
            _done.add(operator)
            lowering.register_lowering(operator, type_promotion_kind=None)(partial(_lower, operator))


def _lower(operator: Any, *args: Any) -> Any:
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    graph = V.graph
    n_before = len(graph.operations)
    result = torch.utils._pytree.tree_map_only(ir.IRNode, lambda node: node.wrap_for_lowering(),
                                               ir.FallbackKernel.create(operator, *args))
    for operation in graph.operations[n_before:]:
        if isinstance(operation, ir.FallbackKernel):
            last = getattr(graph, "_godwit_last", None)
            if last is not None:
                graph.additional_star_deps[operation.get_operation_name()].add(last)
            graph._godwit_last = operation.get_name()
    return result
