"""The job that this process belongs to: one for each process, joined once.

There is at most one world at a time.  It is left by itself when the process
ends; a forked child leaves its parent's alone.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from typing import Any, Optional, Union

from . import _native
from ._native import World, WrongState

Bytes = Union[bytes, bytearray, memoryview]

_lock = threading.Lock()  # held while joining, so that two threads join once
_world: Optional[World] = None
_joined_with: dict[str, Any] = {}  # what is in force and the world itself does not tell


def init(
    rank: Optional[int] = None,
    size: Optional[int] = None,
    job: Optional[str] = None,
    node_size: Optional[int] = None,
    timeout: Optional[float] = None,
    *,
    _within: Optional[World] = None,  # for the look-alikes: give up when anybody of this world ends
) -> World:
    """Join the job and return its world, when all processes of it have come.

    What is not given is found out: from `godwit run`, then from torchrun; a
    process that nobody launched is a world of one.  With a size and no rank,
    ranks are given by order of arrival.

    rank, size  this process's number, and how many processes there are
    job         a name; processes that give the same name meet
    node_size   cut the machine into virtual nodes of so many processes
    timeout     seconds that a wait may last before it fails with a reason

    To call it again is fine and gives the same world, unless the arguments say
    otherwise than what is in force: that is WrongState.
    """
    global _world, _joined_with
    given = {"rank": rank, "size": size, "job": job, "node_size": node_size, "timeout": timeout}
    with _lock:
        if _world is not None and not _world.closed:
            _refuse_contradictions(_world, given)
            return world()
        _world = _native.join(rank, size, job, node_size, timeout, False, _within)
        settings = {name: value for name, _, value, _, _ in _native.options()}
        _joined_with = {
            "job": job or settings["GODWIT_JOB"],
            "timeout": timeout or settings["GODWIT_TIMEOUT"],
        }
        return _world


def _refuse_contradictions(world: World, given: dict[str, Any]) -> None:
    in_force = {"rank": world.rank, "size": world.size, **_joined_with}
    wrong = []
    for name, value in given.items():
        if value is None:
            continue
        if name == "node_size":
            # The last node may be smaller, so the nodes are counted.
            if value < 1 or -(-world.size // value) != world.nodes:
                wrong.append(f"node_size={value!r}, but {world.size} processes "
                             f"are in {world.nodes} nodes")
        elif name == "timeout" and value == float(in_force[name]):
            continue
        elif value != in_force[name]:
            wrong.append(f"{name}={value!r}, but it is {in_force[name] or 'not given'}")
    if wrong:
        raise WrongState("this process has already joined a job: " + "; ".join(wrong)
                         + "; close it first, or leave these arguments out")


def _joined() -> World:
    if _world is None:
        raise WrongState("this process has not joined a job; call godwit.init() first")
    return _world  # a world that was left, or is a parent's, says so itself


def joined() -> bool:
    """Whether this process is in a job."""
    return _world is not None and not _world.closed and not _world.forked


def world() -> World:
    """The world that init() joined, with rank, size, node, nodes, local_rank,
    local_size, fabric and reason."""
    joined = _joined()
    joined.rank  # raises here and not later if the world was left
    if joined.forked:
        raise WrongState(f"this process was forked by rank {joined.rank} and is not part of the job; start "
                         "processes with the method 'spawn', or join after forking")
    return joined


def current() -> World:
    """The same, but a process that has not joined a job yet does so now."""
    return init() if _world is None else world()


def barrier() -> None:
    """Return when every process of the job has called it."""
    _joined().barrier()


def send(peer: int, message: Bytes) -> None:
    """Send bytes to rank `peer`.  Returns when `message` may be changed again."""
    _joined().send(peer, message)


def recv(peer: int) -> bytes:
    """Wait for the next message from rank `peer` and return it.

    Messages from one rank arrive in the order in which they were sent.
    """
    return _joined().recv(peer)


def close() -> None:
    """Leave the job.  Others can still receive what was sent before.

    Nothing to leave is fine.  Happens by itself when the process ends.
    """
    if _world is not None:
        _world.close()
        problem = _native.trace_problem()
        if problem:
            warnings.warn(problem, RuntimeWarning, stacklevel=2)


finalize = close


def _forget_lock() -> None:
    # A thread of the parent may have held it; that thread does not exist here.
    global _lock
    _lock = threading.Lock()


def _close_at_exit() -> None:
    try:
        close()
    except WrongState:
        pass  # a thread hangs in a call elsewhere; the others will see this process end


# Registered before anything that the program registers, so it runs after: a
# program's own exit functions may still use the job.
atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_forget_lock)
