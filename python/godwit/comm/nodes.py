"""Nodes of the autograd graph: how results that are ready get their place in it, and what joins them.

Order.  PyTorch's CPU engine runs, of the nodes that are ready, the one made
last, and a node is made after those whose results it takes.  So the nodes of
a pass that are reached run exactly in the reverse order of the forward pass,
and ranks that made their calls in orders that fit together make the calls of
the backward pass in orders that fit together.  What a program has to see to is
only that nodes are reached on all ranks that take part: see Group about sends.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Callable, Optional, Sequence

import torch
from torch import Tensor, is_grad_enabled
from torch.autograd import Function

from .._native import InvalidType, WrongState
from .constants import ABSTAINS
from .group import Group

# On a rank whose own input requires no gradient, this makes a node be made all the same.
ANCHOR = torch.zeros(0, requires_grad=True)
NOTHING = torch.zeros(0)

# Entries of a mark that are kept rather than let go of in the forward pass, which costs 2 us.
SMALL = 2048

Back = Callable[..., Optional[Tensor]]


class Node(Function):
    """Hands over a result that is ready.  Backward is `back` of the group, the gradient and what was saved.

    When a backward pass makes a graph itself, what it computes from others
    depends on this node on all of them, or on none: whoever sees the result's own
    gradient go is not told what the others do with it.  So it is made to depend on
    the node's mark.  That is the result as the node has saved it, for nothing else
    leads back to a node without keeping it alive; its values are not wanted.
    """

    @staticmethod
    def forward(ctx: Any, state: list[Any], x: Optional[Tensor], *joined: Tensor) -> Tensor:
        result = state.pop()  # a node that holds its result would never end
        saves = state[2]
        if saves:
            ctx.save_for_backward(result, *(x, result)[:saves])
        else:
            ctx.save_for_backward(result)
        ctx.state = state
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        # If the result came to nothing here, `grad` is zeros: others wait for it.
        group, back, saves = ctx.state
        if group._unjoined:
            group._begin_pass()
        if is_grad_enabled():
            empty_mark(ctx)
            mark, *saved = ctx.saved_tensors
            with group._depending_on(mark):
                gradient = back(group, grad, *saved)
            gradient = join_rest(group, gradient)
        else:
            gradient = back(group, grad, *ctx.saved_tensors[1:]) if saves else back(group, grad)
        needed = ctx.needs_input_grad
        if gradient is not None and not needed[1]:
            leave_over(group, gradient)
            gradient = None
        return (None, gradient) + (None,) * (len(needed) - 2)


# Function.apply first looks for functorch's wrapped tensors, which the native call has refused already.
_apply = super(Function, Node).apply


def attach(group: Group, back: Back, result: Tensor, flags: int, x: Optional[Tensor], saves: int = 0) -> Tensor:
    """Give `result` a node that leads to `x` and to the messages that wait to be joined."""
    if flags & ABSTAINS:
        back = refuse
    state = [group, back, saves, result]
    if x is not None and x.requires_grad and not group._unjoined:
        result = _apply(state, x)
    else:
        result = _apply(state, x, ANCHOR, *group._join_collective())
    if saves or result.numel() > SMALL:
        empty_mark(result.grad_fn)
    return result


def empty_mark(node: Any) -> None:
    """Let go of the values of a node's mark.  Then it is also no matter whether the program has changed them."""
    with suppress(RuntimeError):  # done before, or the program has hooks of its own
        node._raw_saved_tensors[0].register_hooks(id, lambda _: NOTHING)


def refuse(*unused: Any) -> None:
    raise WrongState("this gradient needs all ranks that made the call, but some made it under torch.no_grad(), with "
                     "NumPy arrays, or in a compiled function that records no gradient")


def join_rest(group: Group, gradient: Tensor) -> Tensor:
    """A gradient, with what was sent while it was computed: the next pass shall come to that too."""
    return join(gradient, group._join_collective()) if group._unjoined else gradient


def leave_over(group: Group, gradient: Tensor) -> None:
    """A gradient nobody here asks for.  If it has a history, others need it run: join it to what comes next."""
    if gradient.requires_grad:
        group._keep_unjoined(Leftover(), gradient)


class Leftover:
    """The key of a result that waits to be joined and is no message."""

    dest = -1


# ---- dependencies that the data do not show --------------------------------------------------


class Join(Function):
    """The first tensor, seemingly made from the others too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *dummies: Tensor) -> Tensor:
        # A leaf's owner may want to see zeros; other nodes do without.
        ctx.dummies = [(d.shape, d.dtype, d.is_leaf) for d in dummies]
        return x.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if grad.requires_grad:  # a graph is made: it must know the dependencies as well
            return (grad, *(join(torch.zeros(shape, dtype=dtype), [grad]) for shape, dtype, _ in ctx.dummies))
        return (grad, *(torch.zeros(shape, dtype=dtype) if is_leaf else None for shape, dtype, is_leaf in ctx.dummies))


def join(x: Tensor, dummies: Sequence[Tensor]) -> Tensor:
    """JoinDummies, for tensors alone."""
    if not is_grad_enabled():
        return x
    live = [dummy for dummy in dummies if dummy.requires_grad]
    for dummy in live:
        mark_joined(dummy)
    if not live:
        return x
    if not (x.is_floating_point() or x.is_complex()):
        raise InvalidType(f"loopthrough: a tensor of {x.dtype} cannot depend on anything in autograd's eyes; join the "
                          "dummies to a floating-point tensor")
    return Join.apply(x, *live)


def mark_joined(dummy: Tensor) -> None:
    """The program itself joins this message, so the group need not."""
    sent = getattr(dummy, "_godwit_sent", None)
    if sent is not None:
        sent.group._unjoined.pop(sent, None)


class Origin(Function):
    """A dummy that leads to `x`, to which it gives a gradient of zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape, ctx.dtype = x.shape, x.dtype
        return torch.zeros(0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return join(torch.zeros(ctx.shape, dtype=ctx.dtype), [grad])


class Spoiled(Function):
    """Takes the place of what made a tensor that an in-place function has overwritten."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        raise WrongState("a tensor that was passed to Bcast_ or Reduce_ was used again; these work in place, so go on "
                         "with the tensor that they return")


def spoil(x: Tensor) -> None:
    """Let every later use of `x` fail when its gradient is asked for.

    A leaf, or a view of one, cannot be changed so; its old value counts on.
    """
    base = x._base if x._is_view() else x
    if x.grad_fn is not None and base is not None and base.grad_fn is not None:
        Spoiled.apply(x)
