"""What the tests of the Python package share.

They run under any Python that can import godwit, with or without PyTorch and
NumPy.  A process belongs to at most one job, so tests of jobs run programs of
their own.
"""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

LIMIT_SECONDS = 60

# Who is started in the background has Ctrl-C ignored, and so would be the programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


class Program:
    """Runs a small Python program and returns what it printed."""

    def __init__(self, directory):
        self.directory = directory

    def start(self, code, *arguments, **more):
        path = os.path.join(str(self.directory), "program.py")
        with open(path, "w") as file:
            file.write(textwrap.dedent(code))
        return subprocess.Popen([sys.executable, path, *arguments], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, **more)

    def run(self, code, *arguments, expect=0, **more):
        process = self.start(code, *arguments, **more)
        try:
            out, err = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"still running after {LIMIT_SECONDS} s\n{out}\n{err}")
        assert process.returncode == expect, f"exit code {process.returncode}\n{out}\n{err}"
        self.err = err
        return out


@pytest.fixture
def program(tmp_path):
    return Program(tmp_path)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    """Tests decide themselves what the environment says about jobs."""
    for name in list(os.environ):
        if name.startswith("GODWIT_"):
            monkeypatch.delenv(name)
