"""native.py - the C part of this program: compiled when it is first needed, and called through ctypes."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import godwit

HERE = Path(__file__).resolve().parent
FLAGS = ["-std=gnu11", "-O3", "-march=native", "-ffast-math", "-fPIC", "-shared", "-Wall", "-Wextra"]


class Failed(Exception):
    """What the C part could not do; its sentence."""


class Options(Structure):
    _fields_ = [*((name, c_int) for name in ("dim", "window", "negatives", "epochs", "block", "share", "ahead", "scheme")),
                *((name, c_double) for name in ("rate", "least_rate", "sample")),
                ("min_count", c_int64), ("most_words", c_int64), ("seed", c_uint64)]


class Plan(Structure):
    _fields_ = [("n_words", c_int64), ("vocabulary", c_int64), ("families", c_int), ("items", c_int), ("forms", c_int),
                ("questions", c_int64), ("seed", c_uint64)]


class Progress(Structure):
    _fields_ = [("words", c_int64), ("words_of_all", c_int64), ("loss", c_double), ("pairs", c_int64)]


# ---- compiling ---------------------------------------------------------------------------------------------------


def output_of(*command: str, **more: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise Failed(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")
    return done.stdout


def compile_command() -> list[str]:
    """What a C program that uses Godwit is compiled with: what pkg-config says, and nothing else."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    for tool in (compiler[0], "pkg-config"):
        if shutil.which(tool) is None:
            raise Failed(f"there is no '{tool}', which compiles the inner loop of this program; install a C compiler and "
                         "pkg-config (Debian and Ubuntu: apt-get install gcc libc6-dev pkg-config)")
    flags = output_of("pkg-config", "--cflags", "--libs", "godwit",
                      env=os.environ | {"PKG_CONFIG_PATH": godwit.get_pkg_config_dir()})
    more = shlex.split(os.environ.get("CFLAGS", ""))
    return [*compiler, *FLAGS, *more, *map(str, sorted(HERE.glob("*.c"))), *shlex.split(flags), "-lm"]


def processor() -> str:
    """What -march=native depends on: a home directory may be that of several machines."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []
    return "".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))


def library() -> Path:
    """The compiled file, in the user's cache under a name that depends on all that it is made of."""
    command = compile_command()
    sources = [*sorted(HERE.glob("*.[ch]")), *sorted(Path(godwit.get_include()).rglob("*.h"))]
    made_of = [*command, output_of(command[0], "--version"), processor(), *(path.read_text() for path in sources)]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "godwit"
    path = cache / f"word2vec-{hashlib.sha256(chr(0).join(made_of).encode()).hexdigest()[:16]}.so"
    try:
        if not path.exists():
            compile_into(cache, path, command)
    except OSError as error:
        raise Failed(f"cannot write to {cache}: {error}; give another directory in XDG_CACHE_HOME") from None
    return path


def compile_into(cache: Path, path: Path, command: list[str]) -> None:
    """One process of a job compiles, the others wait for it."""
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "word2vec.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            part = path.with_suffix(f".{os.getpid()}")
            output_of(*command, "-o", str(part))
            part.rename(path)


def load() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(library()))
    for name, result, arguments in (
            ("error", c_char_p, []), ("job_fingerprint", c_uint64, [c_void_p]), ("job_words", c_int64, [c_void_p]),
            ("job_text_words", c_int64, [c_void_p]), ("job_trainer", c_void_p, [c_void_p]), ("job_abandon", None, [c_void_p]),
            ("job_open", c_int, [POINTER(Options), POINTER(c_void_p)]), ("job_rank", c_int, [c_void_p]),
            ("job_size", c_int, [c_void_p]), ("job_nodes", c_int, [c_void_p]), ("job_close", c_int, [c_void_p]),
            ("job_barrier", c_int, [c_void_p]), ("job_in_step", c_int, [c_void_p]), ("job_read", c_int, [c_void_p, c_char_p]),
            ("job_sum", c_int, [c_void_p, POINTER(c_double), c_size_t]),
            ("job_largest", c_int, [c_void_p, POINTER(c_double), c_size_t]),
            ("job_counts", c_int, [c_void_p, c_int, POINTER(c_char_p), POINTER(c_int64), c_int]),
            ("job_save", c_int, [c_void_p, c_char_p, c_char_p]),
            ("job_load", c_int, [c_void_p, c_char_p, POINTER(c_char_p)]),
            ("job_write", c_int, [c_void_p, c_char_p, c_int]),
            ("job_analogies", c_int, [c_void_p, c_char_p, c_int64, POINTER(c_int64), POINTER(c_int64)]),
            ("trainer_begin", c_int, [c_void_p, c_int]), ("trainer_end", c_int, [c_void_p]),
            ("trainer_train", c_int, [c_void_p, c_int64, POINTER(Progress)]),
            ("generate", c_int, [POINTER(Plan), c_char_p, c_char_p]),
            ("vectors_read", c_int, [c_char_p, c_int, POINTER(c_void_p)]), ("vectors_free", None, [c_void_p]),
            ("vectors_nearest", c_int, [c_void_p, c_char_p, c_int, POINTER(c_int64), POINTER(c_float)]),
            ("vectors_word", None, [c_void_p, c_int64, c_char_p, c_size_t])):
        function = getattr(lib, f"w2v_{name}")
        function.restype, function.argtypes = result, arguments
    return lib


# ---- calling -----------------------------------------------------------------------------------------------------


def path_of(path: Path) -> bytes:
    return os.fsencode(path)


class Job:
    """A w2v_job of word2vec.h.  For godwit.training it is parameters, worker and ranks in one."""

    def __init__(self, lib: ctypes.CDLL, options: Options) -> None:
        self.lib, self.handle = lib, c_void_p()
        self.call("job_open", byref(options), byref(self.handle), job=False)
        self.rank, self.size, self.nodes = (getattr(lib, f"w2v_job_{name}")(self.handle) for name in ("rank", "size", "nodes"))

    def call(self, name: str, *arguments: Any, job: bool = True) -> int:
        result = getattr(self.lib, f"w2v_{name}")(*([self.handle] if job else []), *arguments)
        if result < 0:
            raise Failed(self.lib.w2v_error().decode(errors="replace"))
        return result

    def generate(self, plan: Plan, text: Path, questions: Path) -> None:
        if self.rank == 0:
            self.call("generate", byref(plan), path_of(text), path_of(questions), job=False)
        self.call("job_barrier")

    def read(self, path: Path) -> None:
        self.call("job_read", path_of(path))
        self.trainer = self.lib.w2v_job_trainer(self.handle)
        self.words, self.text_words = self.lib.w2v_job_words(self.handle), self.lib.w2v_job_text_words(self.handle)

    def train(self, epoch: int, words: int):
        """An epoch, in portions of about so many words; gives the loss of each and how many words it really had."""
        self.call("trainer_begin", self.trainer, epoch, job=False)
        before, now, more = Progress(), Progress(), 1
        try:
            while more:
                more = self.call("trainer_train", self.trainer, words, byref(now), job=False)
                yield (now.loss - before.loss) / max(1, now.pairs - before.pairs), now.words - before.words
                before = Progress(now.words, now.words_of_all, now.loss, now.pairs)
        except GeneratorExit:  # the caller has had enough
            pass
        self.call("trainer_end", self.trainer, job=False)

    def write(self, path: Path, binary: bool) -> None:
        self.call("job_write", path_of(path), binary)

    def analogies(self, path: Path, among: int) -> tuple[int, int]:
        asked, found = c_int64(), c_int64()
        self.call("job_analogies", path_of(path), among, byref(asked), byref(found))
        return asked.value, found.value

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        """Leave with the others; or at once, if something failed, and they will notice."""
        handle, self.handle = self.handle, None
        if kind is not None:
            self.lib.w2v_job_abandon(handle)
        elif self.lib.w2v_job_close(handle) < 0:
            raise Failed(self.lib.w2v_error().decode(errors="replace"))

    # ---- what godwit.training asks of parameters ----------------------------------------------------------------

    def stats(self, total: bool = False) -> dict[str, int]:
        names, values = (c_char_p * 128)(), (c_int64 * 128)()
        n = self.call("job_counts", total, names, values, 128)
        return {names[i].decode(): values[i] for i in range(min(n, 128))}

    def _vocabulary(self) -> str:
        return f"{self.lib.w2v_job_fingerprint(self.handle):016x}"

    def save(self, directory: Path, meta: dict[str, Any]) -> None:
        self.call("job_save", path_of(directory), json.dumps(meta | {"vocabulary": self._vocabulary()}).encode())

    def load(self, directory: Path) -> dict[str, Any]:
        text = c_char_p()
        self.call("job_load", path_of(directory), byref(text))
        meta = json.loads(text.value)
        if meta.get("vocabulary") != self._vocabulary():
            raise Failed(f"{directory} is of another text, or of another --min-count: its words are not those of this one")
        return meta

    # ---- of a worker --------------------------------------------------------------------------------------------

    def wait_all(self) -> None:
        """Nothing is under way between two portions."""

    wait_sync = wait_all

    def barrier(self) -> None:
        self.call("job_in_step")

    # ---- and of ranks -------------------------------------------------------------------------------------------

    def sums(self, values: list[float]) -> list[float]:
        return self._together("job_sum", values)

    def largest(self, values: list[float]) -> list[float]:
        return self._together("job_largest", values)

    def _together(self, name: str, values: list[float]) -> list[float]:
        array = (c_double * len(values))(*values)
        self.call(name, array, len(values))
        return list(array)


class Vectors:
    """A file of vectors, as text or, if its name ends with .bin, as bytes."""

    def __init__(self, lib: ctypes.CDLL, path: Path) -> None:
        self.lib, self.handle = lib, c_void_p()
        if lib.w2v_vectors_read(path_of(path), path.suffix == ".bin", byref(self.handle)) < 0:
            raise Failed(lib.w2v_error().decode(errors="replace"))

    def nearest(self, word: str, most: int) -> list[tuple[str, float]]:
        words, cosines, room = (c_int64 * most)(), (c_float * most)(), ctypes.create_string_buffer(4096)
        n = self.lib.w2v_vectors_nearest(self.handle, os.fsencode(word), most, words, cosines)
        if n < 0:
            raise Failed(self.lib.w2v_error().decode(errors="replace"))

        def name(number: int) -> str:
            self.lib.w2v_vectors_word(self.handle, number, room, len(room))
            return room.value.decode(errors="replace")
        return [(name(words[i]), cosines[i]) for i in range(n)]

    def close(self) -> None:
        self.lib.w2v_vectors_free(self.handle)
        self.handle = c_void_p()
