"""The arithmetic of apps/word2vec beside NumPy's, and what compilers say about its sources."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

APP = Path(__file__).resolve().parents[2] / "apps" / "word2vec"
OUTPUTS = 6


@pytest.fixture(scope="module")
def native():
    sys.path.insert(0, str(APP))
    try:
        import native
    finally:
        sys.path.remove(str(APP))
    return native


@pytest.fixture(scope="module")
def lib(native):
    lib = native.load()
    lib.w2v_step.restype = None
    return lib


def aligned(n: int, stride: int) -> np.ndarray:
    """Rows of zeros that begin at a multiple of 64 bytes."""
    bytes_ = np.zeros(n * stride * 4 + 64, np.uint8)
    start = -bytes_.ctypes.data % 64
    return bytes_[start:start + n * stride * 4].view(np.float32).reshape(n, stride)


def pointers(rows: np.ndarray, order: list[int]) -> ctypes.Array:
    return (ctypes.c_void_p * len(order))(*(rows.ctypes.data + int(i) * rows.strides[0] for i in order))


def step(lib, inputs, order, outputs, goal, rate) -> float:
    loss = ctypes.c_double(0)
    lib.w2v_step(pointers(inputs, order), len(order), pointers(outputs, range(OUTPUTS)), (ctypes.c_float * OUTPUTS)(*goal),
                 inputs.shape[1], ctypes.c_float(rate), ctypes.byref(loss))
    return loss.value


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 64])
@pytest.mark.parametrize("stride", [8, 104])
def test_a_step_changes_rows_as_the_derivative_says(lib, n, stride):
    chance = np.random.default_rng(n * 1000 + stride)
    inputs, outputs = aligned(n, stride), aligned(OUTPUTS, stride)
    inputs[:], outputs[:] = chance.normal(size=(n, stride)) * 0.5, chance.normal(size=(OUTPUTS, stride)) * 0.5
    goal = np.array([1, 0, 0, -1, 0, 0])
    x, o, counts = inputs.astype(float), outputs.astype(float), goal >= 0
    scores = x @ o.T
    slope = np.where(counts, (goal == 1) - 1 / (1 + np.exp(-scores)), 0) * 0.05
    loss = np.logaddexp(0, np.where(goal == 1, -scores, scores))[:, counts].sum()
    assert step(lib, inputs, range(n), outputs, goal, 0.05) == pytest.approx(loss, rel=1e-4)
    np.testing.assert_allclose(inputs, x + slope @ o, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs, o + slope.T @ x, rtol=1e-4, atol=1e-5)


def test_scores_of_any_size_give_finite_steps(lib):
    inputs, outputs = aligned(1, 8), aligned(OUTPUTS, 8)
    inputs[0, 0], outputs[:, 0] = 1, [1e30, -1e30, 90, -90, 0, 1e4]
    step(lib, inputs, [0], outputs, [1, 0, 0, 0, 0, 1], 1.0)
    assert outputs[:, 0] == pytest.approx([1e30, -1e30, 89, -90, -0.5, 1e4])


def test_an_input_that_is_there_twice_gets_both_changes(lib):
    chance = np.random.default_rng(5)
    inputs, outputs = aligned(2, 16), aligned(OUTPUTS, 16)
    inputs[:], outputs[:] = chance.normal(size=16) * 0.3, chance.normal(size=(OUTPUTS, 16)) * 0.3
    before, goal = inputs[0].copy(), [1, 0, 0, 0, 0, 0]
    apart, same = outputs.copy(), aligned(OUTPUTS, 16)
    same[:] = apart
    step(lib, inputs, [0, 1], outputs, goal, 0.01)
    one = inputs[0] - before
    inputs[0] = before
    step(lib, inputs, [0, 0], same, goal, 0.01)
    np.testing.assert_allclose(inputs[0] - before, 2 * one, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compilers_have_nothing_to_say(native, compiler, monkeypatch):
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    monkeypatch.setenv("CC", compiler)
    command = [word for word in native.compile_command() if word not in ("-shared", "-lm") and not word.startswith(("-l", "-L", "-Wl"))]
    done = subprocess.run([*command, "-fsyntax-only", "-Werror", "-Wpedantic", "-Wshadow", "-Wundef", "-Wconversion",
                           "-Wstrict-prototypes", "-Wmissing-prototypes"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
