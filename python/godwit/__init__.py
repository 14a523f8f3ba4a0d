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

Parameters are keyed vectors that all processes read and change:

    kv = godwit.Parameters(num_keys=1000, lengths=64)
    worker = kv.worker()

godwit.nn and godwit.optim have embeddings on top of them; godwit.training has what
programs that train share: epochs, checkpoints, progress.

The names of godwit.comm (COMM_WORLD, JoinDummies, MPI_SUM...) are here too; they
need PyTorch, which is imported when one of them is first used.
"""

from typing import TYPE_CHECKING, Any

from ._native import (
    BrokenMessage,
    Error,
    Interrupted,
    InvalidType,
    InvalidValue,
    NotNow,
    OutOfMemory,
    OutOfRange,
    Parameters,
    RankLost,
    RanksDisagree,
    SystemFailure,
    TimedOut,
    Unsupported,
    Worker,
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
    "Parameters",
    "RankLost",
    "RanksDisagree",
    "SystemFailure",
    "TimedOut",
    "Unsupported",
    "Worker",
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

if TYPE_CHECKING:
    from . import backend as backend
    from . import comm as comm
    from . import memory as memory
    from . import nn as nn
    from . import optim as optim
    from . import show as show
    from . import training as training
    from .comm import *  # noqa: F403

_MODULES = frozenset(("backend", "comm", "memory", "nn", "optim", "show", "training"))  # imported when they are first used
_NAMES_OF_COMM = frozenset((
    "ANY_SOURCE", "ANY_TAG", "COMM_WORLD", "Communicator", "JoinDummies", "JoinDummiesHandle", "MPI_BAND", "MPI_BOR",
    "MPI_BXOR", "MPI_Communicator", "MPI_LAND", "MPI_LOR", "MPI_LXOR", "MPI_MAX", "MPI_MAXLOC", "MPI_MIN", "MPI_MINLOC",
    "MPI_PROD", "MPI_SUM", "WaitHandle", "comm_from_mpi4py", "comm_from_torch",
))


def __getattr__(name: str) -> Any:
    if name not in _MODULES and name not in _NAMES_OF_COMM:
        raise AttributeError(f"module 'godwit' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f".{name if name in _MODULES else 'comm'}", __name__)
    value = globals()[name] = module if name in _MODULES else getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_NAMES_OF_COMM})
