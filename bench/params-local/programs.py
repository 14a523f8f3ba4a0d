"""The processes that measure: how they are started, asked, and ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from machine import CannotRun

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ANSWER_LIMIT_S = 180


class Program:
    """A process that prints a line of JSON when it is ready, and one for each line it is told.

    When this process is gone, its input ends, and so does it."""

    def __init__(self, command: Sequence[object], extra: dict[str, str] | None = None) -> None:
        self.command = [str(word) for word in command]
        self.errors = tempfile.TemporaryFile()
        self.child = subprocess.Popen(self.command, env={**os.environ, **(extra or {})}, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=self.errors)
        self.buffer = b""

    def answer(self) -> dict[str, Any]:
        end = time.monotonic() + ANSWER_LIMIT_S
        output = self.child.stdout.fileno()
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([output], [], [], max(0.0, end - time.monotonic()))
            got = os.read(output, 1 << 16) if ready else b""
            if not got:
                raise CannotRun(f"{self.command} {'ended' if ready else 'does not answer'}:\n{self.said()}")
            self.buffer += got
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def tell(self, order: str) -> None:
        try:
            self.child.stdin.write(order.encode() + b"\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            raise CannotRun(f"{self.command} ended:\n{self.said()}") from None

    def ask(self, order: str) -> dict[str, Any]:
        self.tell(order)
        return self.answer()

    def said(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def close(self) -> None:
        """To be called for all of a job before any is waited for: closing is collective."""
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.close()

    def join(self) -> None:
        try:
            self.child.wait(30)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.child.stdout.close()
        self.errors.close()


@contextlib.contextmanager
def started(*commands: Sequence[object], job: bool = False) -> Iterator[list[tuple[Program, dict[str, Any]]]]:
    """The programs, each with what it said of itself; with `job`, they are the ranks of one."""
    name = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    programs: list[Program] = []
    try:
        for rank, command in enumerate(commands):
            extra = {"GODWIT_JOB": name, "GODWIT_RANK": str(rank), "GODWIT_SIZE": str(len(commands)),
                     "GODWIT_TIMEOUT": "120"} if job else {}
            programs.append(Program(command, extra))
        yield [(program, program.answer()) for program in programs]
    finally:
        for program in programs:
            program.close()
        for program in programs:
            program.join()
