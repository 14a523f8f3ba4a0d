"""Messages between two ranks, and how their gradients travel back.

The sender tells along with a message whether it requires a gradient.  If so,
the backward pass of the receiver sends the gradient of what it got to the
sender, as a message whose tag holds the number of the first; the backward pass
of the sender takes it in.  Both use the functions of this file, so they can be
differentiated in turn.

    sender     Isend  Wait   ...   backward of Wait: begin to receive   of Isend: take it in
    receiver   Irecv  Wait   ...   backward of Wait: begin to send      end of the pass: it is sent

To begin early lets the gradients of an exchange cross; but nothing depends on
it, for sending does not wait, and Isend's backward does all that is left to do.
"""

from __future__ import annotations

from operator import index
from typing import Any, Callable, Optional

import torch
from torch import Tensor, is_grad_enabled
from torch.autograd import Function

from .. import _native
from .._native import InvalidType, OutOfRange, WrongState
from .arrays import dense, is_numpy, target, tensor_of, written
from .constants import ANY_TAG, GRADIENT_TAG, NEEDS, TAG_LIMIT
from .group import Group
from .handle import WaitHandle
from .nodes import ANCHOR, NOTHING, Origin, join, join_rest


class Sent:
    """A message on its way, and its gradient on its way back."""

    __slots__ = ("group", "x", "request", "dest", "number", "shape", "dtype", "gradient", "__weakref__")

    def __init__(self, group: Group, x: Tensor, request: _native.Request, dest: int, number: int):
        self.group = group
        self.x: Optional[Tensor] = x
        self.request = request
        self.dest = dest
        self.number = number
        self.shape, self.dtype = x.shape, x.dtype
        self.gradient: Optional[tuple[Tensor, _native.Request]] = None  # being received

    def begin_gradient(self) -> tuple[Tensor, _native.Request]:
        if self.gradient is None:
            raw = torch.empty(self.shape, dtype=self.dtype)
            self.gradient = raw, self.group._open().irecv(raw, self.dest, GRADIENT_TAG + self.number)
        return self.gradient

    def take_gradient(self, mark: Tensor) -> Tensor:
        raw, request = self.begin_gradient()
        self.gradient = None
        status = request.wait()
        return received(self.group, raw, status, mark if status[3] & NEEDS else NOTHING)


class Awaited:
    """A message that is to be received."""

    __slots__ = ("group", "buffer", "raw", "request")

    def __init__(self, group: Group, buffer: Tensor, raw: Tensor, request: _native.Request):
        self.group = group
        self.buffer = buffer
        self.raw = raw
        self.request = request


# ---- sending --------------------------------------------------------------------------------------


class SendNode(Function):
    """Isend: a dummy that leads to what is sent.  It is also the node's mark, as Node has one."""

    @staticmethod
    def forward(ctx: Any, sent: Sent, x: Tensor, *joined: Tensor) -> Tensor:
        ctx.sent, ctx.n_joined = sent, len(joined)
        dummy = torch.empty(0)
        ctx.save_for_backward(dummy)
        return dummy

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        sent = ctx.sent
        sent.group._begin_pass()
        sent.group._unjoined.pop(sent, None)
        gradient = join(sent.take_gradient(*ctx.saved_tensors), [grad])
        return (None, join_rest(sent.group, gradient) if is_grad_enabled() else gradient) + (None,) * ctx.n_joined


class SentNode(Function):
    """Wait for a message that was sent: the tensor itself, which also depends on the sending."""

    @staticmethod
    def forward(ctx: Any, sent: Sent, x: Tensor, dummy: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.sent = sent
        return x.detach()

    @staticmethod
    def backward(ctx: Any, grad: Optional[Tensor]) -> Any:
        ctx.sent.group._begin_pass()
        ctx.sent.begin_gradient()
        return None, grad, None


def isend(comm: Group, x: Tensor, dest: int, tag: int, *joined: Tensor) -> WaitHandle:
    records = x.requires_grad and is_grad_enabled()
    request, number = comm._open().isend(dense(x), dest, tag, NEEDS if records else 0)
    sent = Sent(comm, x, request, dest, number)
    dummy = NOTHING
    if records:
        dummy = SendNode.apply(sent, x, *joined)
        dummy._godwit_sent = sent
        comm._keep_unjoined(sent, dummy)
    return WaitHandle([dummy])._of(sent)


def _wait_sent(sent: Sent, dummy: Tensor) -> Tensor:
    sent.request.wait()
    x, sent.x = sent.x, None
    if not (dummy.requires_grad and is_grad_enabled()):
        return x.detach()
    result = SentNode.apply(sent, x, dummy)
    result._godwit_sent = sent
    return result


# ---- receiving --------------------------------------------------------------------------------------


class ReceivedNode(Function):
    """Wait for a message: what came, and the way back for its gradient.  The second output is the node's mark."""

    @staticmethod
    def forward(ctx: Any, group: Group, result: tuple[Tensor], needs: bool, source: int, number: int, dummy: Tensor,
                *joined: Tensor) -> tuple[Tensor, Tensor]:
        ctx.group, ctx.needs, ctx.source, ctx.number, ctx.n_joined = group, needs, source, number, len(joined)
        mark = torch.empty(0)
        ctx.save_for_backward(mark)
        return result[0], mark

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> Any:
        group, behind = ctx.group, None
        group._begin_pass()
        if ctx.needs:
            handle = isend(group, grad, ctx.source, GRADIENT_TAG + ctx.number, *ctx.saved_tensors)
            group._outgoing.append(handle._message.request)
            if handle.dummy.requires_grad and ctx.needs_input_grad[5]:
                behind = join(torch.zeros(0), [handle.dummy])
        return (None, None, None, None, None, behind) + (None,) * ctx.n_joined


def irecv(comm: Group, buffer: Tensor, source: int, tag: int) -> WaitHandle:
    raw = target(buffer)
    request = comm._open().irecv(raw, source, tag)
    dummy = Origin.apply(buffer) if buffer.requires_grad and is_grad_enabled() else NOTHING
    return WaitHandle([dummy])._of(Awaited(comm, buffer, raw, request))


def received(comm: Group, result: Tensor, status: tuple[int, ...], dummy: Tensor) -> Tensor:
    """Give what came a node, if it or the sender wants one."""
    source, _, _, flags, number = status
    needs = bool(flags & NEEDS)
    if not is_grad_enabled() or not (needs or dummy.requires_grad):
        return result
    joined = comm._join_receive()
    return ReceivedNode.apply(comm, (result,), needs, source, number, dummy, ANCHOR, *joined)[0]


# ---- both ---------------------------------------------------------------------------------------------


def begin(function: Callable[..., WaitHandle], comm: Group, array: Any, peer: int, tag: int) -> WaitHandle:
    """isend or irecv with what a program passes; what Wait gives is of the same kind."""
    tag = checked_tag(tag, receives=function is irecv)
    if isinstance(array, Tensor):
        return function(comm, array, peer, tag)
    handle = function(comm, tensor_of(array, writes=function is irecv), peer, tag)
    handle._is_numpy = True
    return handle


def end(handle: WaitHandle) -> Any:
    if not handle._is_numpy:
        return wait(handle)
    with torch.no_grad():
        return wait(handle).numpy()


def wait(handle: WaitHandle) -> Tensor:
    message, handle._message = handle._message, None
    if message is None:
        raise WrongState("handle: its message was waited for already, or began inside a scripted function")
    try:
        if isinstance(message, Sent):
            return _wait_sent(message, handle.dummy)
        status = message.request.wait()
        return received(message.group, written(message.buffer, message.raw), status, handle.dummy)
    except BaseException:
        if not message.request.done:
            handle._message = message  # timed out or interrupted: it can be waited for again
        raise


def sendrecv(comm: Group, x: Any, dest: int, buffer: Any, source: int, sendtag: int, recvtag: int) -> Any:
    sendtag, recvtag = checked_tag(sendtag, "sendtag"), checked_tag(recvtag, "recvtag", receives=True)
    if is_numpy(buffer):
        with torch.no_grad():
            buffer = tensor_of(buffer, "recvtensor", writes=True)
            return sendrecv(comm, x, dest, buffer, source, sendtag, recvtag).numpy()
    incoming = irecv(comm, tensor_of(buffer, "recvtensor"), source, recvtag)
    outgoing = isend(comm, tensor_of(x, "sendtensor"), dest, sendtag)
    got = wait(incoming)
    wait(outgoing)
    return join(got, [outgoing.dummy])


def checked_tag(tag: int, name: str = "tag", receives: bool = False) -> int:
    try:
        tag = index(tag)
    except TypeError:
        raise InvalidType(f"{name}: {tag!r} is no whole number") from None
    if not (0 <= tag < TAG_LIMIT or (receives and tag == ANY_TAG)):
        raise OutOfRange(f"{name}: {tag} is out of range; tags go from 0 to {TAG_LIMIT - 1}"
                         + (", and ANY_TAG" if receives else ""))
    return tag
