"""What adapm and lapse have in common: setup, servers and workers, on godwit.Parameters.

A server process is a node.  Its Server has the parameters, and each of its threads a
Worker, one of the `num_threads` workers that godwit.Parameters has in each process.

What is kept from those projects though Godwit has it otherwise:

- What is pushed or set asynchronously may be changed at once: it is copied first.
- Values that require a gradient are pulled into; autograd does not hear of it.
- Keys may be a list, and `async` may be given by its name, with ** only.
- A worker that is dropped goes on to count, until it or its server ends.
"""

from __future__ import annotations

import array
import atexit
import multiprocessing.util
import operator
import os
import sys
import threading
import warnings
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Optional

from .. import _native, job
from .._native import Error, InvalidType, InvalidValue, Parameters, WrongState
from . import meeting

TECHNIQUES = {
    "": "all",
    "all": "all",
    "replication_only": "replication",
    "relocation_only": "relocation",
    "static": "static",
}


# ---- setting up ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    num_keys: int
    num_threads: int
    technique: str


_settings: Optional[Settings] = None
_server: Optional[Server] = None  # the one that is open in this process
_hooked_in = 0  # the process that has our functions called when it ends


def _whole_number(name: str, value: Any, low: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidType(f"{name}: {value!r} is no whole number") from None
    if number < low:
        raise InvalidValue(f"{name} is {number}; it must be at least {low}")
    return number


def set_up(num_keys: Any, num_threads: Any, use_techniques: Any = "", num_channels: Any = -1) -> Settings:
    """Look at what setup() and scheduler() were given; nothing is joined yet."""
    if use_techniques not in TECHNIQUES:
        raise InvalidValue(f"use_techniques is {use_techniques!r}; give 'all', 'replication_only', 'relocation_only' or 'static'")
    if _whole_number("num_channels", num_channels, -1) == 0:
        raise InvalidValue("num_channels is 0; leave it out, or give a number above 0 (Godwit makes nothing of it)")
    return Settings(_whole_number("num_keys", num_keys, 1), _whole_number("num_threads", num_threads, 1),
                    TECHNIQUES[use_techniques])


def setup(num_keys: Any, num_threads: Any, use_techniques: Any = "", num_channels: Any = -1) -> None:
    global _settings
    _settings = set_up(num_keys, num_threads, use_techniques, num_channels)


def scheduler(num_keys: Any, num_threads: Any) -> None:
    set_up(num_keys, num_threads)
    meeting.schedule("scheduler()")


# ---- arguments ------------------------------------------------------------------------------


def _lengths(given: Any, num_keys: int) -> Any:
    """A number for all keys, or integers in the place of what may be floats."""
    if hasattr(given, "long") and hasattr(given, "reshape"):  # a tensor
        flat = given.detach().reshape(-1)
        whole = flat.long()
    elif hasattr(given, "astype") and getattr(given, "ndim", 0) > 0:
        flat = given.reshape(-1)
        whole = flat.astype("int64")
    else:
        return given  # a number, a list, or what Parameters refuses
    if not bool((whole == flat).all()):
        key = int((whole != flat).tolist().index(True))
        raise InvalidValue(f"value_lengths[{key}] is {flat[key].item()}; lengths are whole numbers")
    return int(whole[0]) if len(whole) == 1 and num_keys > 1 else whole


def _copy(values: Any) -> Any:
    """A copy that nobody else changes, or None."""
    if hasattr(values, "clone"):
        return values.detach().clone()
    return values.copy() if hasattr(values, "copy") and hasattr(values, "dtype") else None


def _adapted(keys: Any, values: Any) -> Optional[tuple[Any, Any]]:
    """What those projects take and Godwit does not: lists of keys, values that require a gradient."""
    if isinstance(keys, (list, tuple)):
        try:
            return array.array("q", keys), values
        except (TypeError, OverflowError):
            return None
    if getattr(values, "requires_grad", False) is True:
        return keys, values.detach()
    return None


def flag(asynchronous: Any, named: dict[str, Any]) -> Any:
    """Calls take `async`, which Python's grammar keeps for itself, only as **{"async": True}."""
    if named.keys() != {"async"}:
        unknown = next(name for name in named if name != "async")
        raise TypeError(f"there is no argument {unknown!r}; the arguments are keys, vals and async")
    return named["async"]


# ---- the server -----------------------------------------------------------------------------


class Server:
    """The parameters of a job, as a node sees them; one for each process."""

    def __init__(self, value_lengths: Any):
        """Collective: returns when the scheduler and all servers are there.

        value_lengths   a length for all vectors, or a tensor with one for each key,
                        of whole numbers, also as floats
        """
        global _server
        if _settings is None:
            raise WrongState("this process has not said how many keys and threads there are; "
                             "call setup(num_keys, num_threads) before Server()")
        if _server is not None and _server._pid == os.getpid():
            raise WrongState("this process has a server already; shut it down before there is another")
        self._pid = os.getpid()
        self._settings = _settings
        self._lock = threading.Lock()
        self._natives: dict[int, _native.Worker] = {}  # by number, under _lock
        self._workers: weakref.WeakValueDictionary[int, Worker] = weakref.WeakValueDictionary()
        self._kv: Optional[Parameters] = None
        self._world: Optional[_native.World] = None
        self._lengths: Any = None
        self._longest_sampled = 0  # of the keys that are sampled, if their lengths differ
        self._meeting = meeting.Meeting("server", "Server()")
        try:
            self._world = self._meeting.open_room()
            self._lengths = _lengths(value_lengths, self._settings.num_keys)
            self._kv = Parameters(self._settings.num_keys, self._lengths, "float32", self._settings.num_threads,
                                  self._settings.technique)
        except BaseException:
            self._leave()
            raise
        _server = self
        _hook_in()

    def _open(self) -> Parameters:
        if self._kv is None or self._kv.closed:
            raise WrongState("this server was shut down")
        return self._kv

    def my_rank(self) -> int:
        """The number of this node, from 0; given by order of arrival."""
        self._open()
        return self._world.rank

    def barrier(self) -> None:
        """Collective: return when the servers of all nodes have called it."""
        self._open()
        self._world.barrier()

    def enable_sampling_support(self, scheme: str, with_replacement: bool, distribution: str, min: int, max: int) -> None:
        """Collective: let workers draw keys from min to max - 1.

        scheme          "naive", "preloc", "pool" or "local"
        distribution    "uniform" or "log-uniform"
        """
        self._open().enable_sampling(scheme=scheme, distribution=distribution, min=min, max=max,
                                     replacement=bool(with_replacement))
        if hasattr(self._lengths, "__len__"):
            sampled = self._lengths[min:max]
            low, high = (sampled.min(), sampled.max()) if hasattr(sampled, "max") else (sorted(sampled)[0], sorted(sampled)[-1])
            self._longest_sampled = int(high) if int(low) != int(high) else 0

    def shutdown(self) -> None:
        """Collective: return when all servers are shut down; until then this one serves its keys.

        Workers that were not finalized end here.
        """
        if self._kv is None:
            return
        try:
            for native in list(self._natives.values()):
                native.close()  # else others would wait for it at their barriers
            kv, self._kv = self._kv, None
            self._meeting.wait_for_all()
            kv.close()
        except BaseException as error:
            if not (isinstance(error, WrongState) and self._kv is not None):
                self._leave()
            raise  # if it is still open, a thread uses its worker, and shutdown() can be called again
        self._leave()

    def _leave(self) -> None:
        """Go, waiting for nobody."""
        global _server
        self._kv = None
        if _server is self:
            _server = None
        try:
            if self._world is not None and self._world is job._world:
                job.close()
        finally:
            self._meeting.close()

    def _take(self, number: int, worker: Worker) -> _native.Worker:
        """The native worker with this number, for a new Worker."""
        with self._lock:
            kv = self._open()
            if number in self._workers:
                raise WrongState(f"there is a worker {number} already; give each thread's worker a number of its own")
            if number not in self._natives:
                if len(self._natives) == self._settings.num_threads:
                    raise WrongState(f"there is no worker {number}: setup() was told of {self._settings.num_threads} threads, "
                                     f"and there are the workers {', '.join(map(str, sorted(self._natives)))}")
                self._natives[number] = kv.worker()
            elif self._natives[number].closed:
                raise WrongState(f"worker {number} was finalized")
            self._workers[number] = worker
            return self._natives[number]

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__}: {self._kv or 'shut down'}>"


# ---- the end of a process that has not shut its server down -------------------------------


def _hook_in() -> None:
    """Both: processes that multiprocessing forks do not run what is registered with atexit."""
    global _hooked_in
    if _hooked_in != os.getpid():
        _hooked_in = os.getpid()
        multiprocessing.util.Finalize(None, _end, exitpriority=100)
        atexit.register(_end)


def _end() -> None:
    """A process that ends well does what shutdown() does; one that fails leaves at once."""
    server = _server
    if server is None or server._pid != os.getpid():
        return
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    if error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0)):
        server._leave()
        return
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    try:
        server.shutdown()
    except Error as reason:
        print(f"godwit: {reason}", file=sys.stderr)


# ---- workers --------------------------------------------------------------------------------


class Worker:
    """Reads and changes parameters, for one thread."""

    def __init__(self, number: Any, server: Server):
        if not isinstance(server, Server):
            raise InvalidType(f"server: {server!r} is no Server")
        self._number = _whole_number("the worker's number", number, 0)
        self._server = server
        self._native = server._take(self._number, self)

    # access

    def _write(self, call: Callable[..., int], keys: Any, vals: Any, asynchronous: Any) -> int:
        if asynchronous:
            copies = _copy(keys), _copy(vals)
            if copies[0] is not None and copies[1] is not None:
                return call(*copies, True)
        try:
            return call(keys, vals)
        except InvalidType:
            adapted = _adapted(keys, vals)
            if adapted is None:
                raise
            return call(*adapted)

    def pull(self, keys: Any, vals: Any, asynchronous: Any = False, **named: Any) -> int:
        """Read the vectors of keys into vals.  Returns a timestamp for wait(), -1 if it is done.

        If async, which is the third argument, the call may return before.
        """
        if named:
            asynchronous = flag(asynchronous, named)
        try:
            return self._native.pull(keys, vals, asynchronous)
        except (InvalidType, InvalidValue):
            adapted = _adapted(keys, vals)
            if adapted is None:
                raise
            return self.pull(*adapted, asynchronous)

    def push(self, keys: Any, vals: Any, asynchronous: Any = False, **named: Any) -> int:
        """Add vals to the vectors of keys.  As pull(); vals may be changed at once."""
        return self._write(self._native.push, keys, vals, flag(asynchronous, named) if named else asynchronous)

    def set(self, keys: Any, vals: Any, asynchronous: Any = False, **named: Any) -> int:
        """Assign vals to the vectors of keys.  As push()."""
        return self._write(self._native.set, keys, vals, flag(asynchronous, named) if named else asynchronous)

    def wait(self, timestamp: int) -> None:
        """Return when the call that gave this timestamp is done."""
        self._native.wait(timestamp)

    def waitall(self) -> None:
        """Return when all calls of this worker are done."""
        self._native.wait_all()

    # intents and clocks

    def intent(self, keys: Any, start: int, end: int = 0) -> int:
        """Announce that this worker will use keys in the clocks from start to end - 1; end 0 is start + 1."""
        if isinstance(keys, (list, tuple)):
            keys = (_adapted(keys, None) or (keys,))[0]
        self._native.intent(keys, start, end if end != 0 else None)
        return -1

    def advance_clock(self) -> None:
        """Add 1 to this worker's clock."""
        self._native.advance_clock()

    def current_clock(self) -> int:
        """This worker's clock, which starts at 0."""
        return self._native.current_clock

    # sampling

    def prepare_sample(self, K: int, start: int, end: int = 0) -> Any:
        """Draw K keys, which this worker will pull in these clocks.  Returns what pull_sample() takes."""
        return self._native.prepare_sample(K, start, end if end != 0 else None)

    def pull_sample(self, id: Any, keys: Any, vals: Any, asynchronous: Any = False, **named: Any) -> int:
        """Fill keys with the next ones of the sample, and vals with their vectors.  As pull().

        Where lengths differ, nobody knows how much the vectors will need.  What finds no
        room in vals is left out, with a warning.
        """
        if named:
            asynchronous = flag(asynchronous, named)
        try:
            return self._native.pull_sample(id, keys, vals, asynchronous)
        except InvalidValue as error:
            if self._server._longest_sampled == 0:
                raise
            return self._pull_what_fits(id, keys, vals, error)

    def _pull_what_fits(self, id: Any, keys: Any, vals: Any, error: InvalidValue) -> int:
        """Godwit wants room for the longest vectors of all that could come: so they come elsewhere first."""
        try:
            n = len(keys.reshape(-1)) if hasattr(keys, "reshape") else len(keys)
            room = array.array("f", bytes(4 * n * self._server._longest_sampled))
            given = memoryview(vals.detach().numpy() if hasattr(vals, "detach") else vals).cast("B").cast("f")
        except (TypeError, ValueError, RuntimeError):
            raise error from None
        if len(given) >= len(room) or given.readonly:
            raise error
        self._native.pull_sample(id, keys, room)
        drawn = keys.reshape(-1).tolist() if hasattr(keys, "reshape") else list(keys)
        wanted = sum(map(self._server._open().length, drawn))
        fits = min(wanted, len(given))
        given[:fits] = memoryview(room)[:fits]
        if wanted > fits:
            warnings.warn(f"vals has {fits} entries, but the vectors of the sampled keys {drawn} have {wanted}; the last "
                          f"{wanted - fits} are left out", RuntimeWarning, stacklevel=3)
        return -1

    def finish_sample(self, id: Any) -> None:
        """The rest of the sample is not needed."""
        self._native.finish_sample(id)

    # together

    def wait_sync(self) -> None:
        """Return when what this node wrote is with the owners and its copies are as new."""
        self._native.wait_sync()

    wait_replica_sync = wait_sync

    def begin_setup(self) -> None:
        """Collective: before parameters are given their first values."""
        self._native.begin_setup()

    def end_setup(self) -> None:
        """Collective: what was written before, by any worker, all see after it."""
        self._native.end_setup()

    def barrier(self) -> None:
        """Collective: return when all workers have called it, were finalized, or had their server shut down."""
        self._native.barrier()

    def finalize(self) -> None:
        """Collective: finish what this worker began, wait for the others, end."""
        if self._native.closed:
            return
        self._native.wait_all()
        self._native.wait_sync()
        self._native.barrier()
        self._native.close()

    # what there is

    def get_key_size(self, key: int = 0, **named: Any) -> int:
        """How many entries the vector of a key has."""
        if named:
            key = named.pop("key_id", key)
            if named:
                raise TypeError(f"there is no argument {next(iter(named))!r}; the argument is key_id")
        return self._server._open().length(key)

    @property
    def num_keys(self) -> int:
        """How many keys there are."""
        return self._server._settings.num_keys

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} {self._number}: {self._native}>"
