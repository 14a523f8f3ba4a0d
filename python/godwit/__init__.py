"""A distributed-memory runtime for PyTorch.

    import godwit

    world = godwit.init()                 # the job this process belongs to
    if world.rank == 0:
        godwit.send(1 % world.size, b"hello")
    if world.rank == 1 % world.size:
        print(godwit.recv(0))
    godwit.barrier()

Run it alone, or as four processes with `godwit run -n 4 program.py`.
`godwit check` says whether jobs can run on this machine.
"""

from ._native import (
    BrokenMessage,
    Error,
    Interrupted,
    InvalidType,
    InvalidValue,
    NotNow,
    OutOfMemory,
    OutOfRange,
    RankLost,
    RanksDisagree,
    SystemFailure,
    TimedOut,
    Unsupported,
    World,
    WrongState,
)
from ._native import version as __version__
from .install import get_include, get_pkg_config_dir
from .job import barrier, close, finalize, init, recv, send, world

__all__ = [
    "BrokenMessage",
    "Error",
    "Interrupted",
    "InvalidType",
    "InvalidValue",
    "NotNow",
    "OutOfMemory",
    "OutOfRange",
    "RankLost",
    "RanksDisagree",
    "SystemFailure",
    "TimedOut",
    "Unsupported",
    "World",
    "WrongState",
    "__version__",
    "barrier",
    "close",
    "finalize",
    "get_include",
    "get_pkg_config_dir",
    "init",
    "recv",
    "send",
    "world",
]
