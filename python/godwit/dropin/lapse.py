"""Lapse's names, on top of godwit.Parameters.

    import godwit.dropin.lapse as lapse       # or `godwit run --as lapse program.py`

    lapse.setup(num_keys=1000, num_threads=2)
    server = lapse.Server(lengths)                           # a tensor
    kv = lapse.Worker(0, 1, server)                          # customers count from 1
    kv.localize(keys)
    kv.pull(keys, vals)

docs/dropin.md tells how processes find each other, what each name means here, and
what differs.
"""

from __future__ import annotations

from typing import Any

from . import keyed
from .keyed import InvalidType, InvalidValue

__all__ = ["Server", "Worker", "scheduler", "setup"]


def setup(num_keys: int, num_threads: int) -> None:
    """Say how many keys there are, and how many worker threads each node will have."""
    keyed.setup(num_keys, num_threads)


def scheduler(num_keys: int, num_threads: int) -> None:
    """In the scheduler's process: returns when all servers are shut down."""
    keyed.scheduler(num_keys, num_threads)


class Server(keyed.Server):
    """The parameters of a job, as a node sees them: Server(lengths), or Server(num_keys, length)."""

    def __init__(self, *arguments: Any, **named: Any):
        if len(arguments) == 2 and not named:
            settings = keyed._settings
            if settings is not None and arguments[0] != settings.num_keys:
                raise InvalidValue(f"Server() is for {arguments[0]!r} keys, but setup() was told of {settings.num_keys}")
            arguments = arguments[1:]
        super().__init__(*arguments, **named)


class Worker(keyed.Worker):
    """Reads and changes parameters, for one thread: Worker(app_id, customer_id, server).

    app_id        anything; there is one application
    customer_id   from 1 on, in each process anew
    server        of this process

    Worker(id, server), where numbers begin at 0, is how later versions have it.
    """

    def __init__(self, *arguments: Any):
        if len(arguments) == 2:
            number, server = arguments
        elif len(arguments) == 3:
            _, number, server = arguments
            if number == 0:
                raise InvalidValue("customer_id is 0, which is the server itself; workers count from 1")
        else:
            raise InvalidType(f"Worker() takes app_id, customer_id and server; {len(arguments)} arguments were given")
        super().__init__(number, server)

    def localize(self, keys: Any, asynchronous: Any = False, **named: Any) -> int:
        """Bring keys to this node.  Returns a timestamp for wait(); -1: it is done.

        If async, which is the second argument, the call returns at once.
        """
        if named:
            asynchronous = keyed.flag(asynchronous, named)
        if isinstance(keys, (list, tuple)):
            keys = (keyed._adapted(keys, None) or (keys,))[0]
        return self._native.localize(keys, asynchronous)
