"""The functions as operators, for TorchScript: each calls its namesake in Python.

Declared CONSERVATIVE, an operator may do anything in TorchScript's eyes, so no
pass drops, merges or moves it.
"""

from __future__ import annotations

import itertools
from typing import Any, List, Optional

import torch
from torch import Tensor

from . import collectives, messages
from .compiled import LIBRARY
from .group import numbered
from .handle import WaitHandle
from .nodes import join


def _define(schema: str, kernel: Any) -> None:
    name = schema.partition("(")[0]
    LIBRARY.define(schema, alias_analysis="CONSERVATIVE")
    LIBRARY.impl(name, kernel, "CompositeImplicitAutograd")


_define("rank(int comm) -> int", lambda comm: numbered(comm).rank)
_define("size(int comm) -> int", lambda comm: numbered(comm).size)
_define("Barrier(int comm) -> ()", lambda comm: numbered(comm).Barrier())

_define("Allreduce(Tensor tensor, int comm, int op) -> Tensor",
        lambda tensor, comm, op: collectives.allreduce(numbered(comm), tensor, op))
_define("Bcast_(Tensor tensor, int comm, int root) -> Tensor",
        lambda tensor, comm, root: collectives.bcast_(numbered(comm), tensor, root))
_define("Reduce_(Tensor tensor, int comm, int op, int root) -> Tensor",
        lambda tensor, comm, op, root: collectives.reduce_(numbered(comm), tensor, op, root))
_define("Scan(Tensor tensor, int comm, int op) -> Tensor",
        lambda tensor, comm, op: collectives.scan(numbered(comm), tensor, op))
_define("Gather(Tensor tensor, int comm, int gatheraxis, int root) -> Tensor",
        lambda tensor, comm, axis, root: collectives.gather(numbered(comm), tensor, axis, root))
_define("Allgather(Tensor tensor, int comm, int gatheraxis) -> Tensor",
        lambda tensor, comm, axis: collectives.allgather(numbered(comm), tensor, axis))
_define("Scatter(Tensor? tensor, int comm, int scatteraxis, int numelem, int root) -> Tensor",
        lambda tensor, comm, axis, n, root: collectives.scatter(numbered(comm), tensor, axis, n, root))
_define("Alltoall(Tensor tensor, int comm, int gatheraxis, int scatteraxis, int numelem) -> Tensor",
        lambda tensor, comm, axis, axis2, n: collectives.alltoall(numbered(comm), tensor, axis, axis2, n))
_define("Reduce_scatter(Tensor tensor, int comm, int op, int scatteraxis, int numelem) -> Tensor",
        lambda tensor, comm, op, axis, n: collectives.reduce_scatter(numbered(comm), tensor, op, axis, n))
_define("JoinDummies(Tensor loopthrough, Tensor[] dummies) -> Tensor", join)


# ---- messages: a handle is a list of tensors there, of which the second holds a number ----------

_messages: dict[int, Any] = {}
_keys = itertools.count()


def _raw(handle: WaitHandle) -> List[Tensor]:
    key = next(_keys)
    _messages[key] = handle._message
    return [handle.dummy, torch.tensor(key)]


def _isend(tensor: Tensor, comm: int, dest: int, tag: int) -> List[Tensor]:
    return _raw(messages.begin(messages.isend, numbered(comm), tensor, dest, tag))


def _irecv(tensor: Tensor, comm: int, source: int, tag: int) -> List[Tensor]:
    return _raw(messages.begin(messages.irecv, numbered(comm), tensor, source, tag))


def _wait(raw: List[Tensor]) -> Tensor:
    handle = WaitHandle(raw[:1])
    handle._message = _messages.pop(int(raw[1]), None) if len(raw) > 1 else None
    return messages.wait(handle)


def _sendrecv(sendtensor: Tensor, comm: int, dest: int, recvtensor: Tensor, source: int, sendtag: int,
              recvtag: int) -> Tensor:
    return messages.sendrecv(numbered(comm), sendtensor, dest, recvtensor, source, sendtag, recvtag)


_define("Isend(Tensor tensor, int comm, int dest, int tag) -> Tensor[]", _isend)
_define("Irecv(Tensor tensor, int comm, int source, int tag) -> Tensor[]", _irecv)
_define("Wait(Tensor[] handle) -> Tensor", _wait)
_define("Sendrecv(Tensor sendtensor, int comm, int dest, Tensor recvtensor, int source, int sendtag, int recvtag) "
        "-> Tensor", _sendrecv)
