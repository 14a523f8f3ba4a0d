"""The ranks that communicate, seen from this process: the part of a Communicator that TorchScript does not see.

A group also remembers what autograd would forget.  A message that was sent has
no result in the sender's loss, so its node would not be reached in the backward
pass and its gradient never be taken in.  The group keeps the dummies of such
messages until the next result that requires a gradient, to which they are
joined (nodes.py); what is still there when a backward pass begins is given up.
"""

from __future__ import annotations

import itertools
import warnings
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterator, Optional

import torch

from .. import _native, job
from .._native import WrongState

if TYPE_CHECKING:
    from .communicator import Communicator

# A rank that only sends, and records what nobody ever differentiates, shall not fill its memory.
MOST_UNJOINED = 1000

_MARK = "mark"  # in Group._unjoined, the key of what is no message

_numbers = itertools.count()
_by_number: weakref.WeakValueDictionary[int, "Communicator"] = weakref.WeakValueDictionary()


def numbered(number: int) -> "Communicator":
    """The communicator that an operator of TorchScript or torch.compile means."""
    comm = _by_number.get(number)
    if comm is None:
        raise WrongState("this communicator exists no more; keep a reference to it while it is used")
    return comm


class Group:
    """Some ranks of the world; Communicator has the functions with MPI's names."""

    _number: int
    _native: Optional[_native.Comm]
    _rank: int
    _size: int
    _is_world: bool
    _backwards: Optional[_native.Comm]
    _unjoined: dict[Any, torch.Tensor]  # by messages.Sent
    _joined_once: bool  # all in _unjoined were joined to a message received since
    _outgoing: list[Any]  # requests of gradients that are being sent
    _pass: Optional[weakref.ref]  # to the end of the backward pass that has reached this group

    def _setup(self) -> None:
        self._native = None
        self._rank = self._size = -1
        self._is_world = False
        self._backwards = None
        self._unjoined = {}
        self._joined_once = False
        self._outgoing = []
        self._pass = None
        _by_number[self._number] = self  # type: ignore[assignment]

    def _open(self) -> _native.Comm:
        """The native communicator, which the world's own finds at its first use."""
        native = self._native
        if native is not None and not native.closed:
            return native
        if not self._is_world:
            raise WrongState("this communicator is closed")
        world = job.init() if job._world is None else job.world()
        return self._take(world.comm())

    def _take(self, native: _native.Comm) -> _native.Comm:
        self._native = native
        self._rank, self._size = native.rank, native.size
        return native

    # ---- other groups ----------------------------------------------------------------

    def Split(self, color: int, key: int = 0) -> Optional["Communicator"]:
        """Collective: the ranks that give the same color get a communicator of their own.

        They are ordered by key, then by rank.  A color below 0 gets None.
        """
        native = self._open().split(color, key)
        return None if native is None else communicator(native)

    def Dup(self) -> "Communicator":
        """Collective: the same ranks, with messages and collectives of their own."""
        return communicator(self._open().split(0, self._rank))

    def _reversed(self) -> _native.Comm:
        """Collective at its first use: the same ranks in reverse order."""
        if self._backwards is None or self._backwards.closed:
            self._backwards = self._open().split(0, -self._rank)
        return self._backwards

    def close(self) -> None:
        """Give the communicator back; not collective.  The world's own stays."""
        if self._native is not None and not self._is_world:
            self._native.close()
            if self._backwards is not None:
                self._backwards.close()

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._native is None or self._native.closed:
            return f"<godwit.comm.Communicator, {'not joined yet' if self._is_world else 'closed'}>"
        return f"<godwit.comm.Communicator: rank {self._rank} of {self._size}>"

    def __reduce__(self) -> Any:
        if not self._is_world:
            raise WrongState("only COMM_WORLD can be pickled or copied; other communicators belong to their process")
        return "COMM_WORLD"

    # ---- messages to join -------------------------------------------------------------------

    def _keep_unjoined(self, message: Any, dummy: torch.Tensor) -> None:
        if self._joined_once:
            self._forget_unjoined()
        self._unjoined[message] = dummy
        if len(self._unjoined) > MOST_UNJOINED:
            self._unjoined.pop(next(iter(self._unjoined)))

    def _forget_unjoined(self) -> None:
        self._unjoined.clear()
        self._joined_once = False

    def _join_collective(self) -> tuple[torch.Tensor, ...]:
        """The dummies of all messages that nothing was joined to."""
        mark = self._unjoined.pop(_MARK, None)
        dummies = () if self._joined_once else tuple(self._unjoined.values())
        self._forget_unjoined()
        return dummies if mark is None else (mark, *dummies)

    def _join_receive(self) -> tuple[torch.Tensor, ...]:
        """The same for a message that was received.  As long as no other is sent, more may be received in the same
        exchange, and torch.autograd.grad would not come to them if they were joined to nothing."""
        self._joined_once = bool(self._unjoined)
        return tuple(self._unjoined.values())

    @contextmanager
    def _depending_on(self, mark: torch.Tensor) -> Iterator[None]:
        """The first node that is made inside depends on `mark`."""
        self._unjoined[_MARK] = mark
        try:
            yield
        finally:
            self._unjoined.pop(_MARK, None)

    # ---- backward passes ---------------------------------------------------------------

    def _begin_pass(self) -> None:
        """A node of this group is reached.  The first one in a pass makes way for it."""
        if self._pass is not None and self._pass() is not None:
            return
        # The engine holds what it is to call at the end of the pass, and lets go of it then, or when the pass fails.
        end = _EndOfPass(self)
        self._pass = weakref.ref(end)
        self._outgoing.clear()
        self._give_up()
        torch.autograd.Variable._execution_engine.queue_callback(end)

    def _give_up(self) -> None:
        """Let go of messages that nothing was joined to.  If that ends one, its gradient will not be taken in."""
        kept = [] if self._joined_once else [(weakref.ref(message), message.dest) for message in self._unjoined]
        self._forget_unjoined()
        for message, dest in kept:
            if message() is None:
                warnings.warn(f"the gradient of a message to rank {dest} is lost, because nothing that requires a "
                              "gradient came after it; join its result to the loss with JoinDummies, or send "
                              "tensor.detach()", stacklevel=1)


class _EndOfPass:
    """Gradients that were sent are waited for only now: nobody's pass stands still because of a large one."""

    def __init__(self, group: Group):
        self.group = group

    def __call__(self) -> None:
        self.group._pass = None
        outgoing, self.group._outgoing = self.group._outgoing, []
        for request in outgoing:
            request.wait()


def communicator(native: _native.Comm) -> "Communicator":
    from .communicator import Communicator

    made = Communicator(next(_numbers))
    made._take(native)
    return made
