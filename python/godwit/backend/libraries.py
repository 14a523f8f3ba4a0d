"""Which BLAS libraries are here: found by their files, asked in a child process."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Iterable, Optional

from .. import _native

ALTERNATIVES = "/etc/alternatives"

# What a program that has imported only this has loaded; NumPy is kept out of PyTorch's way.
_MAPS_PROGRAM = """
import sys
if sys.argv[1] == "torch":
    sys.modules["numpy"] = None
import warnings
warnings.simplefilter("ignore")
__import__(sys.argv[1])
print(open("/proc/self/maps").read())
"""


@dataclass
class Library:
    """One BLAS, as it described itself."""

    name: str  # what use() and the commands call it: "openblas-serial"
    path: str
    vendor: str
    version: str
    int_bits: int
    threading: str
    threads: int  # 0: it does not say
    kernel: str
    config: str
    sgemm: bool
    dgemm: bool
    cblas: bool
    also: list[str] = field(default_factory=list)  # files that are the same library again
    chosen_as: list[str] = field(default_factory=list)  # names that the system leads to it, "libblas.so.3"
    used_by: list[str] = field(default_factory=list)  # "torch", "numpy", of this Python

    @property
    def described(self) -> str:
        return f"{self.vendor} {self.version}".rstrip()


def python_directories() -> list[str]:
    """Where packages of this Python may have libraries of their own."""
    wanted = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path]
    if sys.prefix not in ("/usr", "/usr/local"):
        wanted.append(os.path.join(sys.prefix, "lib"))
    found = []
    for directory in wanted:
        if directory and os.path.isdir(directory) and "site-packages" in directory + "dist-packages":
            found.append(os.path.realpath(directory))
    return list(dict.fromkeys(found))


def _ask(path: str) -> Optional[dict]:
    try:
        return _native.blas_probe(path)
    except _native.Unsupported:  # a file of that name that is none
        return None
    except _native.Error as error:
        return {"path": path, "problem": str(error)}


def _system_names() -> dict[str, list[str]]:
    """Names that the system's alternatives lead to a file, by that file."""
    names: dict[str, list[str]] = {}
    try:
        entries = sorted(os.listdir(ALTERNATIVES))
    except OSError:
        return names
    for entry in entries:
        if entry.startswith("lib") and ".so" in entry and ("blas" in entry or "blis" in entry):
            real = os.path.realpath(os.path.join(ALTERNATIVES, entry))
            names.setdefault(real, []).append(entry.partition("-")[0])
    return names


@functools.lru_cache(maxsize=None)
def loaded_by(package: str) -> frozenset[str]:
    """The files that a program of this Python has mapped once it has imported `package`."""
    done = subprocess.run([sys.executable, "-c", _MAPS_PROGRAM, package], capture_output=True, text=True, cwd="/")
    paths = (line.split(None, 5)[5].strip() for line in done.stdout.splitlines() if line.count("/"))
    return frozenset(os.path.realpath(path) for path in paths if path.startswith("/"))


def _rank(info: dict) -> tuple:
    """The file that stands for a library comes first: its own name before a generic one."""
    name = os.path.basename(info["path"])
    return (not info["version"], info["path"] != info["file"], name.startswith(("libcblas", "libf77blas")),
            name.startswith("libblas"), name)


def _fold(answers: Iterable[dict]) -> list[Library]:
    """One Library for all files of a directory that are the same thing."""
    groups: dict[tuple, list[dict]] = {}
    for info in sorted(answers, key=lambda info: not info["version"]):
        info["file"] = os.path.realpath(info["file"] or info["path"])
        key = (info["vendor"], info["version"], info["int_bits"], info["threading"],
               "" if info["vendor"] == "atlas" else os.path.dirname(info["file"]))
        if not info["version"]:  # a file that hides who it is, beside one of that vendor that does not
            key = next((other for other in groups if other[0] == key[0] and other[4] == key[4]), key)
        groups.setdefault(key, []).append(info)
    found = []
    for group in groups.values():
        group.sort(key=_rank)
        first = group[0]
        # A file that only passes calls on: the one that does the work is the library.
        path = first["file"]
        also = [info["path"] for info in group if info["path"] != path and "libtorch" not in info["path"]]
        found.append(Library(
            name="", path=path, also=list(dict.fromkeys(also)),
            **{key: first[key] for key in ("vendor", "version", "int_bits", "threading", "threads", "kernel",
                                           "config", "sgemm", "dgemm", "cblas")}))
    return found


def _package(path: str) -> str:
    for part in ("numpy", "scipy", "torch"):
        if f"/{part}.libs/" in path or f"/{part}/" in path:
            return part
    return ""


def _give_names(found: list[Library]) -> None:
    """Short, and each once: the vendor, with what tells it from others of that vendor."""
    preferred = {"pthread": 0, "openmp": 1, "serial": 2}
    order = sorted(found, key=lambda library: (bool(_package(library.path)), library.vendor,
                                               preferred.get(library.threading, 3), library.path))
    taken: set[str] = set()
    several = {library.vendor for library in found
               if sum(other.vendor == library.vendor and not _package(other.path) for other in found) > 1}
    for library in order:
        package = _package(library.path)
        name = f"{package}-{library.vendor}" if package else library.vendor
        if not package and library.vendor in several:
            name += f"-{library.threading}"
        if library.int_bits == 64 and not package and library.vendor in several:
            name += "-64" if name in taken else ""
        unique, n = name, 2
        while unique in taken:
            unique, n = f"{name}-{n}", n + 1
        taken.add(unique)
        library.name = unique


def libraries(users: bool = False, problems: Optional[list[str]] = None, hint: str = "") -> list[Library]:
    """Every BLAS of this machine and of this Python's packages.

    With `users`, PyTorch and NumPy are asked which one they load, which takes some seconds. Files that look
    like a BLAS and cannot be loaded are told in the list `problems`, if it is given. With `hint`, only files with that
    in their path are asked.
    """
    paths = [path for path in _native.blas_find(python_directories()) if hint in path]
    with ThreadPoolExecutor(max_workers=4) as pool:
        answers = [info for info in pool.map(_ask, paths) if info is not None]
    if problems is not None:
        problems += [info["problem"] for info in answers if "problem" in info]
    found = _fold(info for info in answers if "problem" not in info)
    _give_names(found)
    system = _system_names()
    for library in found:
        for path in (library.path, *library.also):
            library.chosen_as += system.get(os.path.realpath(path), [])
        library.chosen_as = list(dict.fromkeys(library.chosen_as))
        if users:
            library.used_by = [package for package in ("torch", "numpy")
                               if {library.path, *library.also} & loaded_by(package)]
    return sorted(found, key=lambda library: (bool(_package(library.path)), library.name))


def find(name: str) -> Library:
    """The library that `name` means: a name as `godwit backend list` shows it, the beginning of one (of several,
    the first of pthread, openmp, serial), or a path."""
    name = os.fspath(name)
    if os.sep in name or name.endswith(".so") or ".so." in name:
        if os.sep in name and not os.path.exists(name):
            raise FileNotFoundError(f"there is no library '{name}'")
        info = _native.blas_probe(name)
        found = _fold([info])[0]
        found.name = os.path.basename(name)
        return found
    # Asking them all takes seconds; those that can be meant have the word in their path.
    first = name.partition("-")[0]
    for hint in ({"reference": "/blas/", "mkl": "mkl"}.get(first, first), ""):
        try:
            return _choose(name, libraries(hint=hint))
        except _native.InvalidValue:
            if not hint:
                raise
    raise AssertionError


def _choose(name: str, known: list[Library]) -> Library:
    for library in known:
        if library.name == name:
            return library
    for threading in ("pthread", "openmp", "serial"):
        for library in known:
            if library.name == f"{name}-{threading}":
                return library
    starting = [library for library in known if library.name.startswith(f"{name}-")]
    if starting and name:
        return starting[0]
    raise _native.InvalidValue(f"there is no BLAS '{name}' here; there are: "
                               f"{', '.join(library.name for library in known) or 'none'} (`make backends` installs "
                               "Debian's; a path to a library works too)")
