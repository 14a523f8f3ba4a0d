"""AdaPM's names, on top of godwit.Parameters.

    import godwit.dropin.adapm as adapm       # or `godwit run --as adapm program.py`

    adapm.setup(num_keys=1000, num_threads=2)
    server = adapm.Server(64)                                # the vectors' length
    kv = adapm.Worker(0, server)                             # one for each thread
    kv.pull(keys, vals)

docs/dropin.md tells how processes find each other, what each name means here, and
what differs.
"""

from __future__ import annotations

from . import keyed
from .keyed import InvalidValue, Server

__all__ = ["Server", "Worker", "scheduler", "setup"]


def setup(num_keys: int, num_threads: int, use_techniques: str = "", num_channels: int = -1) -> None:
    """Say how many keys there are, and how many worker threads each node will have.

    use_techniques   "all", "replication_only" or "relocation_only"; also "static": neither
    num_channels     for AdaPM; Godwit makes nothing of it
    """
    keyed.setup(num_keys, num_threads, use_techniques, num_channels)


def scheduler(num_keys: int, num_threads: int) -> None:
    """In the scheduler's process: returns when all servers are shut down."""
    keyed.scheduler(num_keys, num_threads)


class Worker(keyed.Worker):
    """Reads and changes parameters, for one thread.

    id       from 0 to num_threads - 1, in each process anew
    server   of this process
    """

    def __init__(self, id: int, server: Server):
        if isinstance(server, Server) and isinstance(id, int) and id >= server._settings.num_threads:
            raise InvalidValue(f"id is {id}; workers of a node are 0 to {server._settings.num_threads - 1}, "
                               "as setup() was told")
        super().__init__(id, server)
