"""`godwit backend trace conv2d`: the call stack by which an operation of PyTorch reaches the code that does its work."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import Optional

from .. import _native
from .profile import profile
from .report import readable

PROGRAMS = {
    "conv2d": "x = torch.randn(16, 64, 56, 56); w = torch.randn(64, 64, 3, 3)\ncall = lambda: torch.conv2d(x, w, padding=1)",
    "conv2d-backward": "x = torch.randn(16, 64, 56, 56, requires_grad=True); w = torch.randn(64, 64, 3, 3, "
                       "requires_grad=True)\ncall = lambda: torch.conv2d(x, w, padding=1).sum().backward()",
    "mm": "a = torch.randn(1024, 1024)\ncall = lambda: torch.mm(a, a)",
    "linear": "x = torch.randn(1024, 1024); w = torch.randn(1024, 1024); b = torch.randn(1024)\n"
              "call = lambda: torch.nn.functional.linear(x, w, b)",
    "bmm": "a = torch.randn(16, 256, 256)\ncall = lambda: torch.bmm(a, a)",
}
_RUN = """
import time, warnings
warnings.simplefilter("ignore")
import torch
torch.manual_seed(0)
{body}
def godwit_traced():
    end = time.process_time() + {seconds}
    while time.process_time() < end:
        call()
{around}
"""

# What frames are about, from the words in them: (pattern on library, pattern on function, what to say).
_LAYERS = (
    (r"libpython|^python", r"", "the Python interpreter"),
    (r"libtorch_python", r"THPVariable", "PyTorch's Python binding: arguments become C++ tensors"),
    (r"libtorch_python", r"PythonKernelHolder|pybind", "back into Python: a kernel written in Python"),
    (r"libtorch_cpu", r"VariableType|TraceType|ADInplaceOrView", "autograd: notes what backward will need"),
    (r"libtorch_cpu", r"at::_ops::|Dispatcher|redispatch|wrap_kernel|BoxedKernel", "the dispatcher: picks the kernel by the tensors' keys"),
    (r"libtorch_cpu", r"dnnl|ideep|mkldnn", "oneDNN, which PyTorch contains"),
    (r"libtorch_cpu", r"mkl_|^(s|d)gemm|gemm_", "MKL, which PyTorch contains"),
    (r"libtorch_cpu", r"at::native", "ATen: the operation itself"),
    (r"libgodwit|_native", r"", "Godwit: the switched BLAS is called from here"),
    (r"blas|blis|atlas", r"", "the BLAS"),
    (r"no file", r"", "machine code that was generated for these shapes when the program ran"),
    (r"libgomp|libomp|libiomp", r"", "OpenMP: the same work in several threads"),
)


def layer_of(library: str, function: str) -> str:
    for on_library, on_function, text in _LAYERS:
        if re.search(on_library, library) and re.search(on_function, function):
            return text
    return ""


def stacks(operation: str, blas: Optional[str] = None, seconds: float = 2.0) -> Counter:
    """Call stacks of the operation's own work (outermost first), and how often each was seen."""
    if operation not in PROGRAMS:
        raise _native.InvalidValue(f"there is no trace of '{operation}'; there is: {', '.join(PROGRAMS)}")
    around = "godwit_traced()"
    if blas:
        around = f"import godwit.backend\nwith godwit.backend.use({blas!r}, numpy=False):\n    godwit_traced()"
    program = _RUN.format(body=PROGRAMS[operation], seconds=seconds, around=around)
    result = profile([sys.executable, "-c", program], ["libtorch_python"], hz=250)
    if result.exit_code != 0:
        raise _native.WrongState(f"the traced program ended with code {result.exit_code}")
    found: Counter = Counter()
    for stack, n in result.run.stacks.items():
        names = [frame.partition("`")[::2] for frame in stack]
        if any("libtorch_python" in library and re.search(r"THPVariable|THPEngine|Tensor_backward", name)
               for library, name in names):
            found[tuple(names)] += n
    return found


def _interesting(stack: tuple) -> list[tuple[str, str]]:
    """From the binding on, with the interpreter's own frames folded, and runs of one function once."""
    rows: list[tuple[str, str]] = []
    for library, name in stack:
        name = readable(name)
        if library == "?":
            library, name = "(no file)", "(code made at run time)"
        if library.startswith(("libpython", "python")):
            name = "(interpreter)"
        elif library.startswith(("libc.so", "ld-linux")) and not rows:
            continue
        if not rows or rows[-1] != (library, name):
            rows.append((library, name))
    return rows


def show(operation: str, blas: Optional[str] = None, seconds: float = 2.0) -> str:
    """The stack in which most of the time went, explained; then where the work ended, by share."""
    found = stacks(operation, blas, seconds)
    total = sum(found.values())
    if not total:
        raise _native.WrongState("no sample fell into the operation; try --seconds 10")
    ends: Counter = Counter()
    best: Counter = Counter()
    for stack, n in found.items():
        library, name = stack[-1]
        ends[("(no file)", "(code made at run time)") if library == "?" else (library, readable(name))] += n
        best[tuple(_interesting(stack))] += n
    path, n = best.most_common(1)[0]
    lines = [f"torch.{operation}: {total} samples; the path below has {100 * n / total:.0f} % of them", ""]
    last = ""
    for depth, (library, name) in enumerate(path):
        text = layer_of(library, name)
        if text and text != last:
            lines.append(f"{'':<4}-- {text}")
        last = text or last
        shown = name if len(name) <= 90 else name[:89] + "\u2026"
        lines.append(f"{depth:>3} {library:<28} {shown}")
    lines += ["", "where the work ended:"]
    for (library, name), n in ends.most_common(6):
        lines.append(f"  {100 * n / total:5.1f} %  {library}: {name}")
    lines.append("")
    lines.append("functions without a name ('?') are not exported by their library")
    return "\n".join(lines)


