"""Reads the files that godwit-audit.so leaves: who was called how often, by whom, and where the time went.

The layout is that of src/backend/audit/audit.h. A file may be of a process that crashed: nothing in it is
believed without looking.
"""

from __future__ import annotations

import bisect
import mmap
import os
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Iterator, Optional

MAGIC = 0x31464F5250574721
_HEADER = struct.Struct("<Q7I5IQd256s8I4Q")
_OBJECT = struct.Struct("<QQQQQQII456s")
_STUB = struct.Struct("<IIQI108s")
_LONGEST_NAME = 107
_BLOCK_HEAD = 64
_SAMPLE_HEAD = 8
NS = 1e-9


class BrokenRecord(ValueError):
    """A file that is not one of ours, or was cut off."""


# ---- symbols ---------------------------------------------------------------------------------


class Symbols:
    """Functions of an ELF file by address, from its symbol tables."""

    def __init__(self, path: str):
        self.starts: list[int] = []
        self.rows: list[tuple[int, int, str, bool]] = []  # start, size, name, is exported
        try:
            with open(path, "rb") as file:
                self._read(file.read())
        except (OSError, struct.error, IndexError, ValueError):
            pass
        self.rows.sort()
        self.starts = [row[0] for row in self.rows]

    def _read(self, data: bytes) -> None:
        if data[:5] != b"\x7fELF\x02":
            return
        sections_at, = struct.unpack_from("<Q", data, 0x28)
        size, n = struct.unpack_from("<HH", data, 0x3A)
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, sections_at + i * size) for i in range(n)]
        for kind, link, offset, length in ((s[1], s[6], s[4], s[5]) for s in sections):
            if kind not in (2, 11):  # SYMTAB, DYNSYM
                continue
            names = sections[link][4]
            for name, info, _, where, value, bytes_ in struct.iter_unpack("<IBBHQQ", data[offset:offset + length]):
                if info & 0xF in (2, 10) and where != 0 and value != 0:
                    end = data.index(b"\0", names + name)
                    self.rows.append((value, bytes_, data[names + name:end].decode(errors="replace"), kind == 11))

    def at(self, address: int) -> Optional[str]:
        """The function whose code this is, or None; of several names the shortest exported one."""
        i = bisect.bisect_right(self.starts, address)
        best: Optional[tuple] = None
        for row in self.rows[max(0, i - 8):i]:
            start, size, name, exported = row
            if start <= address < start + max(size, 1):
                key = (start, exported, -len(name))
                if best is None or key > best[0]:
                    best = (key, name)
        return best[1] if best else None


_symbols: dict[str, Symbols] = {}


def symbols_of(path: str) -> Symbols:
    if path not in _symbols:
        _symbols[path] = Symbols(path)
    return _symbols[path]


# ---- one file --------------------------------------------------------------------------------


@dataclass
class Object:
    base: int
    text: int
    text_end: int
    path: str
    is_target: bool
    first: int  # sample number when it was loaded
    last: int  # and when it was closed; 0: never

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    def function(self, address: int) -> Optional[str]:
        return symbols_of(self.path).at(address - self.base)


@dataclass
class Binding:
    caller: Object
    target: Object
    name: str
    by_dlsym: bool
    calls: int
    sites: list[tuple[int, int]]  # address, how often it was seen


@dataclass
class Process:
    """What one process image did."""

    path: str
    pid: int
    parent: int
    forked_from: int
    hz: int
    call_ns: float
    program: str
    lost: dict[str, int]
    sampler_gone: bool
    sampling_s: float
    objects: list[Object] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    samples: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)  # tid, addresses, innermost first

    def object_at(self, address: int, sample: Optional[int] = None) -> Optional[Object]:
        """Whose code this is. Of several that were loaded there one after the other, the one at that time."""
        found = [one for one in self.objects if one.text <= address < one.text_end]
        if len(found) > 1 and sample is not None:
            found = [one for one in found if one.first <= sample and (one.last == 0 or sample < one.last)] or found
        return found[-1] if found else None


def _text(raw: bytes) -> str:
    return os.fsdecode(raw.split(b"\0", 1)[0])


def read(path: str) -> Process:
    """What is in one file."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 4096:
            raise BrokenRecord(f"'{path}' has {size} bytes; a record has at least 4096")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return _decode(path, data, size)
    except (struct.error, IndexError) as error:
        raise BrokenRecord(f"'{path}' is cut off or damaged: {error}") from None
    finally:
        data.close()


def _decode(path: str, data: mmap.mmap, size: int) -> Process:
    (magic, header_bytes, object_bytes, stub_bytes, n_sites, max_objects, max_stubs, max_blocks,
     pid, parent, forked_from, hz, _, _started, call_ns, program,
     n_objects, n_stubs, n_blocks, lost_objects, lost_stubs, lost_threads, lost_timers, sampler_gone,
     n_samples, lost_samples, sample_bytes, sampling_ns) = _HEADER.unpack_from(data, 0)
    if magic != MAGIC or (header_bytes, object_bytes, stub_bytes) != (4096, _OBJECT.size, _STUB.size):
        raise BrokenRecord(f"'{path}' is not a record of this version of Godwit")
    stubs_at = header_bytes + max_objects * object_bytes
    sites_at = stubs_at + max_stubs * stub_bytes
    blocks_at = sites_at + max_stubs * n_sites * 16
    block_bytes = _BLOCK_HEAD + 8 * max_stubs
    samples_at = blocks_at + max_blocks * block_bytes
    if samples_at > size or n_objects > max_objects or n_stubs > max_stubs or n_blocks > max_blocks:
        raise BrokenRecord(f"'{path}' says more than it holds")

    process = Process(
        path=path, pid=pid, parent=parent, forked_from=forked_from, hz=hz, call_ns=call_ns, program=_text(program),
        lost={"libraries": lost_objects, "bindings": lost_stubs, "threads": lost_threads, "timers": lost_timers,
              "samples": lost_samples},
        sampler_gone=bool(sampler_gone), sampling_s=sampling_ns * NS)
    for i in range(n_objects):
        base, text, text_end, first, last, _, is_target, _, name = _OBJECT.unpack_from(data, header_bytes + i * object_bytes)
        process.objects.append(Object(base, text, text_end, _text(name), bool(is_target), first, last))
    totals = [0] * n_stubs
    for i in range(n_blocks):
        at = blocks_at + i * block_bytes + _BLOCK_HEAD
        for number, count in enumerate(struct.unpack_from(f"<{n_stubs}Q", data, at)):
            totals[number] += count
    for i in range(n_stubs):
        caller, target, address, is_dlsym, name = _STUB.unpack_from(data, stubs_at + i * stub_bytes)
        if totals[i] == 0:
            continue
        shown = _text(name)
        if len(shown) >= _LONGEST_NAME:  # cut off: the library's own table has the whole
            shown = process.objects[target].function(address) or shown
        pairs = struct.iter_unpack("<QQ", data[sites_at + i * n_sites * 16:sites_at + (i + 1) * n_sites * 16])
        process.bindings.append(Binding(process.objects[caller], process.objects[target], shown,
                                        bool(is_dlsym), totals[i], [pair for pair in pairs if pair[0]]))
    process.samples = list(_samples(data, samples_at, min(samples_at + sample_bytes, size), n_samples))
    return process


def _samples(data: mmap.mmap, at: int, end: int, most: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    while at + _SAMPLE_HEAD <= end and most > 0:
        n, tid = struct.unpack_from("<II", data, at)
        at += _SAMPLE_HEAD
        if n == 0 or n > 64 or at + 8 * n > end:
            return  # the process ended while it wrote this one
        yield tid, struct.unpack_from(f"<{n}Q", data, at)
        at += 8 * n
        most -= 1


# ---- all files of a run ------------------------------------------------------------------------


@dataclass
class Function:
    """An exported function of a library that was looked at."""

    library: str
    name: str
    calls: int = 0
    callers: Counter = field(default_factory=Counter)  # library that calls -> calls
    sites: Counter = field(default_factory=Counter)  # (library, function) -> times seen, of 1 in 64 calls
    self_samples: int = 0
    total_samples: int = 0


@dataclass
class Run:
    """A program and its children, put together."""

    processes: list[Process]
    functions: list[Function]
    libraries: list[str]  # paths that were looked at
    samples: int
    sample_s: float  # seconds that one sample stands for
    inside: Counter  # library -> samples whose innermost code is there
    stacks: Counter  # (outermost .. innermost) -> samples, "library`function"
    damaged: list[str] = field(default_factory=list)


def _overlap(objects: list[Object]) -> bool:
    """Whether some address belonged to two libraries, one after the other."""
    spans = sorted((one.text, one.text_end) for one in objects if one.text_end)
    return any(a[1] > b[0] for a, b in zip(spans, spans[1:]))


Place = tuple[Optional[Object], str]  # whose code, and the function


def _entries(places: list[Place]) -> Iterator[tuple[Object, str, bool]]:
    """Each library that is looked at and on the stack (innermost first), with the function by which it was entered
    last; and whether the innermost code is in it."""
    seen = set()
    i = 0
    while i < len(places):
        target = places[i][0]
        if target is None or not target.is_target or target.path in seen:
            i += 1
            continue
        seen.add(target.path)
        name, innermost = "?", i == 0
        while i < len(places) and places[i][0] is target:
            if places[i][1] != "?":
                name = places[i][1]
            i += 1
        # Nobody but the C library, which starts threads, is further out.
        if all(there is None or there.name.startswith(("libc.so", "libpthread", "[")) for there, _ in places[i:]):
            name = "(in its own threads)"
        yield target, "(not exported)" if name == "?" else name, innermost


def gather(paths: list[str]) -> Run:
    """Everything that the files of a run say together."""
    processes, damaged = [], []
    for path in paths:
        try:
            processes.append(read(path))
        except BrokenRecord as error:
            damaged.append(str(error))
    functions: dict[tuple[str, str], Function] = {}
    inside: Counter = Counter()
    stacks: Counter = Counter()
    hz = max((process.hz for process in processes), default=0)

    def function(target: Object, name: str) -> Function:
        return functions.setdefault((target.path, name), Function(target.name, name))

    for process in processes:
        for binding in process.bindings:
            if binding.calls == 0:
                continue
            one = function(binding.target, binding.name)
            one.calls += binding.calls
            one.callers[binding.caller.name] += binding.calls
            for address, n in binding.sites:
                caller = process.object_at(address - 1) or binding.caller
                one.sites[caller.name, caller.function(address - 1) or "?"] += n
        moving = _overlap(process.objects)  # then an address may mean this and later that
        known: dict[int, Place] = {}
        for number, (_, frames) in enumerate(process.samples):
            if moving:
                known.clear()
            for address in frames:
                if address not in known:
                    there = process.object_at(address, number)
                    known[address] = (there, (there.function(address) or "?") if there else "?")
            places = [known[address] for address in frames]
            for target, name, innermost in _entries(places):
                one = function(target, name)
                one.total_samples += 1
                one.self_samples += innermost
            inside[places[0][0].name if places[0][0] else "?"] += 1
            stacks[tuple(f"{there.name if there else '?'}`{name}" for there, name in reversed(places))] += 1
    libraries = sorted({one.path for process in processes for one in process.objects if one.is_target})
    ordered = sorted(functions.values(), key=lambda f: (-f.total_samples, -f.calls, f.name))
    return Run(processes, ordered, libraries, sum(len(p.samples) for p in processes), 1.0 / hz if hz else 0.0, inside,
               stacks, damaged)
