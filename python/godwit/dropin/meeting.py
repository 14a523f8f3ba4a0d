"""How processes that know only a scheduler's address become a job.

Programs for AdaPM and Lapse start a process for each node and one for the
scheduler, and tell each by variables what it is:

    DMLC_NUM_SERVER      how many nodes there are
    DMLC_ROLE            scheduler or server
    DMLC_PS_ROOT_URI     where the scheduler is: an address of this machine
    DMLC_PS_ROOT_PORT    its port

Nobody has a rank and there is no launcher.  So they meet twice:

    the hall    all servers and the scheduler, whose name is made from the port; ranks
                of servers are given by order of arrival, the scheduler has the last
    the room    the servers alone, as nodes of one process each; the scheduler has
                made up its name, so that no other program comes in

The room is the world of the process (godwit.world()), where parameters are.  The hall
is for the end: whoever is through waits there for the others, for as long as they
take, and its node serves its keys meanwhile.  In both, a process that dies or leaves
is noticed by those who wait, and named.

No port is opened.  The port only tells programs apart that run at the same time.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import socket
from dataclasses import dataclass
from typing import Any, NoReturn

from .. import _native, job
from .._native import Error, InvalidValue, RanksDisagree, TimedOut, Unsupported, World, WrongState

MOST_SERVERS = 1023  # and a scheduler


def _variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise WrongState(f"the variable {name} is not set; a program sets DMLC_NUM_SERVER, DMLC_ROLE, DMLC_PS_ROOT_URI "
                         "and DMLC_PS_ROOT_PORT in each process before it begins")
    return value


def _whole_number(name: str, low: int, high: int) -> int:
    text = _variable(name)
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        raise InvalidValue(f"{name} is {text!r}; it must be a whole number from {low} to {high}")
    return int(text)


def _is_here(address: str) -> bool:
    """Whether an address is one of this machine's: then a socket can be bound to it."""
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise InvalidValue(f"DMLC_PS_ROOT_URI is {address!r}, which is no address: {error}") from None
    for family, kind, protocol, _, where in found:
        try:
            with socket.socket(family, kind, protocol) as trial:
                trial.bind(where)
                return True
        except OSError:
            pass
    return False


def _has_ended(parent: Any) -> bool:
    """Whether the process that started this one has ended.

    is_alive() would not do: processes forked later hold the pipe that it looks at.
    """
    if multiprocessing.get_start_method(allow_none=True) == "forkserver":  # then our parent is the server
        return not parent.is_alive()
    return os.getppid() != parent.pid


@dataclass(frozen=True)
class Told:
    """What the variables say."""

    role: str
    servers: int
    address: str
    port: int

    @property
    def scheduler(self) -> int:
        """The scheduler's rank in the hall."""
        return self.servers


def read_variables(role: str, call: str) -> Told:
    """The variables, which must say that this process is a `role`, as `call` is for."""
    said = _variable("DMLC_ROLE")
    if said != role:
        raise WrongState(f"DMLC_ROLE is {said!r}, but {call} is for a process whose role is {role!r}; "
                         "set it in each process before it begins")
    told = Told(role, _whole_number("DMLC_NUM_SERVER", 1, MOST_SERVERS), _variable("DMLC_PS_ROOT_URI"),
                _whole_number("DMLC_PS_ROOT_PORT", 1, 65535))
    if not _is_here(told.address):
        raise Unsupported(
            f"DMLC_PS_ROOT_URI is {told.address!r}, which is no address of this machine, and a job that spans machines "
            "needs MPI: write the program for godwit.Parameters and start it with mpirun, or run all of its processes on "
            "one machine, with DMLC_PS_ROOT_URI=127.0.0.1")
    return told


class Meeting:
    """The hall: this process, the other servers and the scheduler."""

    def __init__(self, role: str, call: str):
        """Collective: returns when the servers and the scheduler are there."""
        self.told = told = read_variables(role, call)
        is_scheduler = role == "scheduler"
        size = told.servers + 1
        parent = multiprocessing.parent_process()
        if parent is not None and _has_ended(parent):
            raise WrongState(f"process {parent.pid}, which started this one, ended before this one began to meet the others")
        try:
            # A child that outlives its program must not meet those of the next one.
            self.hall: World = _native.join(told.scheduler if is_scheduler else None, size, f"dmlc:{told.port}", size, None,
                                            parent is not None, None)
        except Error as error:
            more = f"DMLC_NUM_SERVER and DMLC_PS_ROOT_PORT say that {told.servers} servers and a scheduler meet at port {told.port}"
            if isinstance(error, RanksDisagree):
                more += "; perhaps another program meets there too, then give it another port"
            self._raise(error, more)

    def _raise(self, error: Error, more: str) -> NoReturn:
        """The same error, with who is meant."""
        first, _, rest = str(error).partition("\n")
        raise type(error)(f"{first} ({more}){rest and chr(10)}{rest}").with_traceback(error.__traceback__) from None

    def _explain(self, error: Error) -> NoReturn:
        self._raise(error, f"servers are ranks 0 to {self.told.servers - 1}, the scheduler is rank {self.told.scheduler}")

    @property
    def rank(self) -> int:
        return self.hall.rank

    def open_room(self) -> World:
        """In servers: the world of the servers alone, which becomes that of this process."""
        try:
            name = self.hall.recv(self.told.scheduler).decode()
            return job.init(self.rank, self.told.servers, name, node_size=1, _within=self.hall)
        except Error as error:
            self._explain(error)

    def name_room(self) -> None:
        """In the scheduler."""
        name = f"dmlc:{self.told.port}:{secrets.token_hex(8)}".encode()
        try:
            for rank in range(self.told.servers):
                self.hall.send(rank, name)
        except Error as error:
            self._explain(error)

    def wait_for_all(self) -> None:
        """Return when everybody is through, whenever that is."""
        while True:
            try:
                return self.hall.barrier()
            except TimedOut:
                continue  # it is the same wait that goes on
            except Error as error:
                self._explain(error)

    def close(self) -> None:
        self.hall.close()


def schedule(call: str) -> None:
    """What a scheduler does: be there at the beginning and at the end."""
    meeting = Meeting("scheduler", call)
    try:
        meeting.name_room()
        meeting.wait_for_all()
    finally:
        meeting.close()
