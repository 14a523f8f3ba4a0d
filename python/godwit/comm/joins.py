"""JoinDummies and JoinDummiesHandle: dependencies that autograd does not see by itself."""

from typing import List

import torch

from . import compiled
from .handle import WaitHandle
from .nodes import join


def JoinDummies(loopthrough: torch.Tensor, dummies: List[torch.Tensor]) -> torch.Tensor:
    """`loopthrough` as it is, but in autograd's eyes made from the dummies too.

    So the backward pass comes to what made the dummies, after what is made from
    the result.  The dummies get a gradient of zero.

        handle = comm.Isend(a, right, 0)
        buffer = JoinDummies(torch.empty_like(a), [handle.dummy])
        b = comm.Recv(buffer, left, 0)
        done = comm.Wait(JoinDummiesHandle(handle, [b]))
        result = JoinDummies(a + b, [done])
    """
    if torch.jit.is_scripting():
        return torch.ops.godwit.JoinDummies(loopthrough, dummies)
    else:
        if compiled.is_compiling():
            return compiled.join(loopthrough, dummies)
        return join(loopthrough, dummies)


def JoinDummiesHandle(handle: WaitHandle, dummies: List[torch.Tensor]) -> WaitHandle:
    """The same for a handle, which is used up by it: wait for the one that is returned."""
    if torch.jit.is_scripting():
        raw = handle._handle
        return WaitHandle([torch.ops.godwit.JoinDummies(raw[0], dummies), raw[1]])
    else:
        return _join_handle(handle, dummies)


def _join_handle(handle: WaitHandle, dummies: List[torch.Tensor]) -> WaitHandle:
    joined = WaitHandle([JoinDummies(handle.dummy, dummies)])
    joined._message, handle._message = handle._message, None
    joined._is_numpy = handle._is_numpy
    return joined
