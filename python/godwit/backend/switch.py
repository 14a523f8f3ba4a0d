"""Routes PyTorch's products and convolutions on CPU, and NumPy's, through a BLAS chosen at run time.

How: a `torch.library` of kind IMPL puts a function in front of each operation, below autograd and above the
CPU's own kernels (at the dispatch key BackendSelect, where nothing stands otherwise). What it can route it
hands to C; everything else (other types, layouts, devices) goes on to the kernel that would have run, and is
counted. Leaving the block deletes the library, and PyTorch is as it was.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, Callable, Optional, Sequence

import torch

from .. import _native
from .libraries import Library, find

aten = torch.ops.aten
_Key = torch._C.DispatchKey
_KEY = "BackendSelect"
_BELOW = torch._C._dispatch_keyset_full_after(_Key.BackendSelect)
_REAL = (torch.float32, torch.float64)
_TYPES = frozenset((torch.Tensor, torch.nn.Parameter))
_strided = torch.strided
_FORWARD, _GRAD_INPUT, _GRAD_WEIGHT = range(3)

_lock = threading.RLock()
_stack: list["Use"] = []  # the innermost one routes
_library: Any = None  # the torch.library while there is one


def _plain(*tensors: torch.Tensor) -> Optional[str]:
    """Why these tensors cannot be routed, or None."""
    first = tensors[0].dtype
    for tensor in tensors:
        if tensor.device.type != "cpu":
            return f"device {tensor.device.type}"
        if tensor.layout is not torch.strided:
            return f"layout {tensor.layout}"
        if tensor.dtype not in _REAL:
            return f"dtype {str(tensor.dtype).rpartition('.')[2]}"
        if tensor.dtype is not first:
            return "mixed dtypes"
        if type(tensor) not in _TYPES:
            return f"type {type(tensor).__name__}"
    return None


def _usable(tensor: torch.Tensor) -> torch.Tensor:
    """Without a pending minus sign, which lives in a bit of the tensor; and without a history."""
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor.detach() if tensor.requires_grad else tensor


def _kernel(op: Any, arguments: Sequence[Any], keywords: dict) -> Callable:
    """The kernel that would have run without us."""
    keys = None
    for value in (*arguments, *keywords.values()):
        if isinstance(value, torch.Tensor):
            own = torch._C._dispatch_keys(value)
            keys = own if keys is None else keys | own
    key = (keys & _BELOW).highestPriorityTypeId()
    name = op.name()
    if not torch._C._dispatch_has_kernel_for_dispatch_key(name, torch._C._dispatch_key_name(key)):
        for alias in (_Key.CompositeExplicitAutograd, _Key.CompositeImplicitAutograd):
            if torch._C._dispatch_has_kernel_for_dispatch_key(name, torch._C._dispatch_key_name(alias)):
                key = alias
                break
    return lambda: op._op_dk(key, *arguments, **keywords)


class Use:
    """What `with use(...) as blas` gives: the library, and what went through it.

    `calls` counts what was routed, by operation; `products` the library's matrix products that this took; `passed` what was left
    to PyTorch, by operation and reason.
    """

    def __init__(self, library: Library, threads: Optional[int] = None, numpy: bool = True):
        self.library = library
        self.threads = threads
        self.numpy = ""  # what became of NumPy's products
        self._with_numpy = numpy
        self.calls: Counter[str] = Counter()
        self.passed: Counter[tuple[str, str]] = Counter()
        self._blas = _native.blas_open(library.path)
        if threads is not None:
            _native.blas_set_threads(self._blas, threads)

    def __repr__(self) -> str:
        return f"<godwit.backend.Use {self.library.name}: {self.library.described}, {self.library.path}>"

    def __enter__(self) -> "Use":
        with _lock:
            _stack.append(self)
            if len(_stack) == 1:
                _register()
        if self._with_numpy:
            from .numpy_switch import route
            self.numpy = route(self._blas)
        return self

    def __exit__(self, *_: object) -> None:
        if self._with_numpy:
            from .numpy_switch import unroute
            unroute()
        with _lock:
            _stack.remove(self)
            if not _stack:
                _unregister()

    @property
    def products(self) -> int:
        """How often the library's sgemm or dgemm was called: several times for a large convolution."""
        return _native.blas_products(self._blas)

    # ---- products ------------------------------------------------------------------------

    def gemm(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, alpha: float, beta: float) -> None:
        """out = alpha a b + beta out, matrices or stacks of them; copies what has strides that no BLAS takes."""
        a, b = _usable(a), _usable(b)
        wrong = _native.blas_gemm(self._blas, a, b, out, alpha, beta)
        if wrong == 0:
            return
        if wrong & 1:
            a = a.contiguous()
        if wrong & 2:
            b = b.contiguous()
        target = out.contiguous() if wrong & 4 else out
        wrong = _native.blas_gemm(self._blas, a, b, target, alpha, beta)
        assert wrong == 0, wrong
        if target is not out:
            out.copy_(target)

    def conv(self, what: int, first: torch.Tensor, second: torch.Tensor, bias: Optional[torch.Tensor],
             shape: Sequence[int], geometry: tuple) -> torch.Tensor:
        out = torch.empty(shape, dtype=first.dtype)
        _native.blas_conv2d(self._blas, what, _usable(first).contiguous(), _usable(second).contiguous(),
                            None if bias is None else _usable(bias).contiguous(), out, *geometry)
        return out


def use(name: str, threads: Optional[int] = None, numpy: bool = True) -> Use:
    """Route this process's products and 2-D convolutions through a BLAS, as a context manager.

    `name` is a name as `godwit backend list` shows it, or a path to a library. All threads of the process are
    routed while the block lasts; blocks nest, the innermost counts. `threads` sets how many the library's
    products use. NumPy's products are routed too if its build allows it: `blas.numpy` says.

    >>> import torch, godwit.backend
    >>> a = torch.eye(3)
    >>> with godwit.backend.use("reference") as blas:
    ...     b = a @ a
    >>> blas.calls["mm"]
    1
    """
    return Use(find(name), threads, numpy)


def current() -> Optional[Use]:
    """The innermost use() that is open, or None."""
    return _stack[-1] if _stack else None


# ---- operations ------------------------------------------------------------------------------


class _Refused(Exception):
    """This call is PyTorch's; the text says why."""


def _need(*tensors: torch.Tensor) -> None:
    reason = _plain(*tensors)
    if reason is not None:
        raise _Refused(reason)


def _need_dims(n: int, *tensors: torch.Tensor) -> None:
    if any(tensor.dim() != n for tensor in tensors):
        raise _Refused("shapes that do not fit")  # PyTorch words the error


def _product_shape(a: torch.Tensor, b: torch.Tensor) -> tuple:
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise _Refused("shapes that do not fit")
    return (*a.shape[:-1], b.shape[-1])


def _scalar(value: Any) -> float:
    if isinstance(value, complex):
        raise _Refused("complex factor")
    return float(value)


def _check_out(out: torch.Tensor, shape: tuple, like: torch.Tensor) -> None:
    """Only an `out` that is right already, and shares nothing with itself: PyTorch resizes, and warns."""
    if tuple(out.shape) != shape or out.dtype is not like.dtype or out.is_neg():
        raise _Refused("an out of another shape or type")


def _apart(out: torch.Tensor, *inputs: torch.Tensor) -> bool:
    """Whether writing to `out` cannot change an input."""
    mine = out.data_ptr()
    end = mine + sum((size - 1) * stride for size, stride in zip(out.shape, out.stride())) * out.element_size()
    for tensor in inputs:
        theirs = tensor.data_ptr()
        last = theirs + sum((size - 1) * stride
                            for size, stride in zip(tensor.shape, tensor.stride())) * tensor.element_size()
        if theirs <= end and mine <= last and tensor.numel() and out.numel():
            return False
    return True


def _into(blas: Use, out: torch.Tensor, shape: tuple, a: torch.Tensor, b: torch.Tensor, alpha: float,
          beta: float) -> torch.Tensor:
    """The product into `out`, which may overlap a or b."""
    _check_out(out, shape, a)
    if _apart(out, a, b):
        blas.gemm(a, b, out.detach() if out.requires_grad else out, alpha, beta)
        return out
    result = out.clone(memory_format=torch.contiguous_format)
    blas.gemm(a, b, result, alpha, beta)
    out.copy_(result)
    return out


def _quick(blas: Use, a: torch.Tensor, b: torch.Tensor, dims: int, alpha: float, beta: float,
           c: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    """The usual case in as few steps as it takes; None: the long way has to look at it."""
    if a.__class__ not in _TYPES or b.__class__ not in _TYPES:
        return None
    shape = _native.blas_shape(a, b, dims)
    if shape is None or a.is_neg() or b.is_neg():
        return None
    out = a.new_empty(shape)
    if c is not None:
        if c.__class__ not in _TYPES or c.dtype is not a.dtype or not c.is_cpu or c.layout is not _strided or (
                c.shape != shape and c.shape != shape[-1:]):
            return None
        out.copy_(c)
    return out if _native.blas_gemm(blas._blas, a, b, out, alpha, beta) == 0 else None


def _product(dims: int) -> tuple[Callable, Callable]:
    def plain(blas: Use, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = _quick(blas, a, b, dims, 1.0, 0.0, None)
        if out is not None:
            return out
        _need(a, b)
        _need_dims(dims, a, b)
        out = torch.empty(_product_shape(a, b), dtype=a.dtype)
        blas.gemm(a, b, out, 1.0, 0.0)
        return out

    def to_out(blas: Use, a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        _need(a, b, out)
        _need_dims(dims, a, b)
        return _into(blas, out, _product_shape(a, b), a, b, 1.0, 0.0)

    return plain, to_out


def _added(dims: int) -> tuple[Callable, Callable, Callable]:
    """beta * c + alpha * a b, for c of that shape or one that is broadcast to it."""

    def fill(blas: Use, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, beta: float, alpha: float,
             out: Optional[torch.Tensor]) -> torch.Tensor:
        _need(c, a, b) if out is None else _need(c, a, b, out)
        _need_dims(dims, a, b)
        shape = _product_shape(a, b)
        alpha, beta = _scalar(alpha), _scalar(beta)
        if out is not None:
            _check_out(out, shape, a)
        try:
            whole = c.expand(shape)
        except RuntimeError:
            raise _Refused("shapes that do not fit") from None
        if out is c and _apart(c, a, b):
            return _into(blas, c, shape, a, b, alpha, beta)
        # With beta 0, c counts for nothing, not even its NaNs.
        result = torch.empty(shape, dtype=a.dtype)
        if beta != 0:
            result.copy_(_usable(whole))
        blas.gemm(a, b, result, alpha, beta)
        return result if out is None else out.copy_(result)

    def plain(blas: Use, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> torch.Tensor:
        if beta == 1 and alpha == 1:
            out = _quick(blas, a, b, dims, 1.0, 1.0, c)
            if out is not None:
                return out
        return fill(blas, c, a, b, beta, alpha, None)

    def to_out(blas: Use, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1, out: Any) -> torch.Tensor:
        return fill(blas, c, a, b, beta, alpha, out)

    def in_place(blas: Use, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> torch.Tensor:
        _need(c)
        _check_out(c, _product_shape(a, b), a)
        return fill(blas, c, a, b, beta, alpha, c)

    return plain, to_out, in_place


def _mv(blas: Use, a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    _need(a, x)
    _need_dims(2, a)
    _need_dims(1, x)
    _product_shape(a, x.unsqueeze(1))
    out = torch.empty((a.shape[0], 1), dtype=a.dtype)
    blas.gemm(a, x.unsqueeze(1), out, 1.0, 0.0)
    return out.squeeze(1)


def _addmv(blas: Use, c: Any, a: Any, x: Any, *, beta: Any = 1, alpha: Any = 1) -> torch.Tensor:
    _need(c, a, x)
    _need_dims(2, a)
    _need_dims(1, x)
    (shape, _) = _product_shape(a, x.unsqueeze(1))
    alpha, beta = _scalar(alpha), _scalar(beta)
    out = torch.empty((shape, 1), dtype=a.dtype)
    if beta != 0:
        out.copy_(_usable(c).expand(shape).unsqueeze(1))
    blas.gemm(a, x.unsqueeze(1), out, alpha, beta)
    return out.squeeze(1)


# ---- convolutions ----------------------------------------------------------------------------


def _pair(values: Sequence[int]) -> tuple[int, int]:
    values = tuple(values)
    return (values[0], values[-1])


def _layer(x: torch.Tensor, weight: torch.Tensor, stride: Any, padding: Any, dilation: Any, transposed: bool,
           output_padding: Any, groups: int) -> tuple:
    """The geometry, for convolutions that are ours."""
    _need(x, weight)
    if x.dim() != 4 or weight.dim() != 4:
        raise _Refused(f"{max(x.dim(), 2) - 2}-D convolution")
    if 0 in x.shape or 0 in weight.shape:
        raise _Refused("an empty tensor")
    if x.shape[1] != (weight.shape[0] if transposed else weight.shape[1] * groups) or weight.shape[0] % groups:
        raise _Refused("shapes that do not fit")
    stride, padding, dilation = _pair(stride), _pair(padding), _pair(dilation)
    if min(stride) < 1 or min(dilation) < 1 or min(padding) < 0:
        raise _Refused("a geometry that makes no sense")
    return stride, padding, dilation, groups


def _out_shape(x: torch.Tensor, weight: torch.Tensor, geometry: tuple) -> tuple:
    stride, padding, dilation, _ = geometry
    sizes = [(x.shape[2 + i] + 2 * padding[i] - dilation[i] * (weight.shape[2 + i] - 1) - 1) // stride[i] + 1
             for i in range(2)]
    if min(sizes) < 1:
        raise _Refused("shapes that do not fit")
    return (x.shape[0], weight.shape[0], *sizes)


def _transposed_shape(x: torch.Tensor, weight: torch.Tensor, geometry: tuple, output_padding: Any) -> tuple:
    stride, padding, dilation, groups = geometry
    extra = _pair(output_padding)
    sizes = [(x.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (weight.shape[2 + i] - 1)
             + extra[i] + 1 for i in range(2)]
    if min(sizes) < 1:
        raise _Refused("shapes that do not fit")
    return (x.shape[0], weight.shape[1] * groups, *sizes)


def _like(result: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
    """In the memory format that PyTorch's own convolution would have chosen."""
    if any(t.is_contiguous(memory_format=torch.channels_last) and not t.is_contiguous() for t in inputs):
        return result.contiguous(memory_format=torch.channels_last)
    return result


def _convolution(blas: Use, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
                 transposed: bool, output_padding: Any, groups: int) -> torch.Tensor:
    geometry = _layer(x, weight, stride, padding, dilation, transposed, output_padding, groups)
    if bias is not None:
        _need(x, bias)
        if bias.shape != (weight.shape[1] * groups if transposed else weight.shape[0],):
            raise _Refused("shapes that do not fit")
    if not transposed:
        result = blas.conv(_FORWARD, x, weight, bias, _out_shape(x, weight, geometry), geometry)
    else:  # what leads back from the output of a convolution to its input
        shape = _transposed_shape(x, weight, geometry, output_padding)
        result = blas.conv(_GRAD_INPUT, x, weight, None, shape, geometry)
        if bias is not None:
            result += _usable(bias).view(-1, 1, 1)
    return _like(result, x, weight)


def _convolution_backward(blas: Use, grad: Any, x: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any,
                          dilation: Any, transposed: bool, output_padding: Any, groups: int,
                          output_mask: Sequence[bool]) -> tuple:
    geometry = _layer(x, weight, stride, padding, dilation, transposed, output_padding, groups)
    _need(x, grad)
    expected = (_transposed_shape(x, weight, geometry, output_padding) if transposed
                else _out_shape(x, weight, geometry))
    if tuple(grad.shape) != expected:
        raise _Refused("shapes that do not fit")
    grads: list = [None, None, None]
    if output_mask[0]:
        grads[0] = _like(blas.conv(_FORWARD if transposed else _GRAD_INPUT, grad, weight, None, x.shape, geometry),
                         x, weight)
    if output_mask[1]:
        first, second = (grad, x) if transposed else (x, grad)
        grads[1] = _like(blas.conv(_GRAD_WEIGHT, first, second, None, weight.shape, geometry), weight)
    if output_mask[2]:
        grads[2] = _usable(grad).sum((0, 2, 3))
    return tuple(grads)


def _operations() -> list[tuple[str, Any, Callable]]:
    mm, mm_out = _product(2)
    bmm, bmm_out = _product(3)
    addmm, addmm_out, addmm_ = _added(2)
    baddbmm, baddbmm_out, baddbmm_ = _added(3)
    return [
        ("mm", aten.mm.default, mm), ("mm.out", aten.mm.out, mm_out),
        ("bmm", aten.bmm.default, bmm), ("bmm.out", aten.bmm.out, bmm_out),
        ("addmm", aten.addmm.default, addmm), ("addmm.out", aten.addmm.out, addmm_out),
        ("addmm_", aten.addmm_.default, addmm_),
        ("baddbmm", aten.baddbmm.default, baddbmm), ("baddbmm.out", aten.baddbmm.out, baddbmm_out),
        ("baddbmm_", aten.baddbmm_.default, baddbmm_),
        ("mv", aten.mv.default, _mv), ("addmv", aten.addmv.default, _addmv),
        ("convolution", aten.convolution.default, _convolution),
        ("convolution_backward", aten.convolution_backward.default, _convolution_backward),
    ]


def _routed(name: str, op: Any, function: Callable) -> Callable:
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            blas = _stack[-1]
        except IndexError:  # the block was left in another thread, just now
            return _kernel(op, arguments, keywords)()
        try:
            result = function(blas, *arguments, **keywords)
        except _Refused as reason:
            blas.passed[name, str(reason)] += 1
        except _native.OutOfRange:  # integers of 32 bits are too short
            blas.passed[name, "too large for the library's integers"] += 1
        else:
            blas.calls[name] += 1
            return result
        return _kernel(op, arguments, keywords)()

    call.__name__ = name
    return call


def _register() -> None:
    global _library
    _library = torch.library.Library("aten", "IMPL")
    for name, op, function in _operations():
        _library.impl(name, _routed(name, op, function), _KEY)


def _unregister() -> None:
    global _library
    library, _library = _library, None
    if hasattr(library, "_destroy"):
        library._destroy()
    else:  # before 2.1 its end is that of its last reference
        library.m = None
    del library
