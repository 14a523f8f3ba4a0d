"""Tensor intake finds what the tensor's own library says, refuses what cannot be used, and
gives everything back.

PyTorch tensors are taken in twice: as this PyTorch allows, and by the route for PyTorch
before 2.10, which exists in every version.
"""

import array
import ctypes
import gc
import random
import sys
import weakref

import pytest

import godwit
from dlpack_maker import Made
from godwit import _native
from godwit._native import describe, held_bytes, hold, touch

try:
    import numpy as np
except ImportError:
    np = None
try:
    import torch
except ImportError:
    torch = None

needs_numpy = pytest.mark.skipif(np is None, reason="NumPy is not installed")
needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")

DTYPES = ["uint8", "int8", "int16", "int32", "int64", "bool", "float16", "bfloat16", "float32",
          "float64", "complex64", "complex128"]
NUMPY_DTYPES = [name for name in DTYPES if name != "bfloat16"]
SEEDS = range(40)

if torch is not None:
    class OldTensor(torch.Tensor):
        """A tensor whose type has no C functions, as in PyTorch before 2.10."""

        __dlpack_c_exchange_api__ = None
        __c_dlpack_exchange_api__ = None

        __torch_function__ = torch._C._disabled_torch_function_impl

    AS_TENSOR = {"this PyTorch": lambda t: t, "before 2.10": lambda t: t.as_subclass(OldTensor)}
else:
    AS_TENSOR = {}


@pytest.fixture(params=["this PyTorch", "before 2.10"])
def as_tensor(request):
    if torch is None:
        pytest.skip("PyTorch is not installed")
    return AS_TENSOR[request.param]


# ---- the same answers as the tensor's own library ------------------------------------


def random_shape(rng, most_dims=5):
    return [rng.choice([0, 1, 1, 2, 3, 5]) for _ in range(rng.randrange(most_dims + 1))]


def torch_answer(t):
    return {"address": t.data_ptr(), "shape": tuple(t.shape),
            "strides": tuple(s * t.element_size() for s in t.stride()), "n": t.numel(),
            "dtype": str(t.dtype)[len("torch."):], "itemsize": t.element_size(), "writable": True}


def torch_bytes(t):
    dense = t.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    return bytes(dense.view(torch.uint8).tolist()) if dense.numel() else b""


def random_view(rng, t):
    """Views as people make them: transposed, cut, stepped, expanded."""
    for _ in range(rng.randrange(4)):
        if t.dim() == 0:
            return t.expand(rng.randrange(1, 4)) if rng.random() < 0.5 else t
        dim = rng.randrange(t.dim())
        kind = rng.randrange(4)
        if kind == 0:
            t = t.transpose(dim, rng.randrange(t.dim()))
        elif kind == 1 and t.shape[dim] > 1:
            t = t.narrow(dim, 1, t.shape[dim] - 1)
        elif kind == 2:
            t = t[(slice(None),) * dim + (slice(None, None, 2),)]
        elif t.dim() < 6:
            t = t.unsqueeze(dim).expand(*t.shape[:dim], 2, *t.shape[dim:])
    return t


def what_counts(answer):
    """Without what means nothing, where libraries differ: the address if there are no entries,
    and the strides of dimensions without a second entry."""
    empty = answer["n"] == 0
    strides = tuple(0 if empty or size == 1 else stride
                    for size, stride in zip(answer["shape"], answer["strides"]))
    return {**answer, "strides": strides, "address": 0 if empty else answer["address"]}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_torch_tensor_is_what_torch_says(as_tensor, seed):
    rng = random.Random(seed)
    dtype = getattr(torch, rng.choice(DTYPES))
    base = torch.tensor([rng.randrange(100) for _ in range(2000)]).to(dtype)
    shape = random_shape(rng)
    numel = 1
    for size in shape:
        numel *= size
    t = as_tensor(random_view(rng, base[3:3 + numel].reshape(shape)))
    for keep in (False, True):
        assert what_counts(describe(t, keep=keep)) == what_counts(torch_answer(t))
        held = hold(t, keep=keep)
        assert held_bytes(held) == torch_bytes(t)


def array_answer(a):
    return {"address": a.__array_interface__["data"][0], "shape": a.shape, "strides": a.strides, "n": a.size,
            "dtype": a.dtype.name, "itemsize": a.itemsize, "writable": a.flags.writeable}


def random_array_view(rng, a):
    for _ in range(rng.randrange(4)):
        if a.ndim == 0:
            return a
        axis = rng.randrange(a.ndim)
        kind = rng.randrange(4)
        if kind == 0:
            a = a.swapaxes(axis, rng.randrange(a.ndim))
        elif kind == 1:
            a = np.flip(a, axis)
        elif kind == 2:
            a = a[(slice(None),) * axis + (slice(1, None, 2),)]
        elif a.ndim < 6:
            a = np.broadcast_to(np.expand_dims(a, axis), a.shape[:axis] + (2,) + a.shape[axis:])
    return a


@needs_numpy
@pytest.mark.parametrize("seed", SEEDS)
def test_a_numpy_array_is_what_numpy_says(seed):
    rng = random.Random(seed)
    dtype = rng.choice(NUMPY_DTYPES)
    base = np.array([rng.randrange(100) for _ in range(2000)]).astype(dtype)
    shape = random_shape(rng)
    a = random_array_view(rng, base[3:3 + int(np.prod(shape))].reshape(shape))
    assert what_counts(describe(a)) == what_counts(array_answer(a))
    assert held_bytes(hold(a)) == a.tobytes()


@needs_numpy
@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_another_object_for_the_same_dtype_is_understood(dtype):
    twin = np.dtype([("x", dtype)]).newbyteorder()["x"].newbyteorder()  # equal, not identical
    a = np.zeros(3, twin)
    assert describe(a)["dtype"] == dtype


@needs_numpy
def test_long_long_is_int64():
    assert describe(np.zeros(3, np.longlong))["dtype"] == "int64"


@needs_numpy
def test_a_subclass_of_ndarray_is_taken_in():
    class Mine(np.ndarray):
        pass

    a = np.arange(6.0).reshape(2, 3).view(Mine)
    assert describe(a) == array_answer(a)


@needs_numpy
def test_bfloat16_of_ml_dtypes_is_taken_in():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3).T
    assert describe(a) == array_answer(a)
    assert held_bytes(hold(a)) == a.tobytes()
    with pytest.raises(godwit.InvalidType, match="float8"):
        describe(np.zeros(2, ml_dtypes.float8_e5m2))


@needs_torch
def test_parameters_and_other_subclasses_are_taken_in():
    class Mine(torch.Tensor):
        pass

    for t in (torch.nn.Parameter(torch.ones(2, 3)), torch.ones(3).as_subclass(Mine),
              torch.nn.parameter.Buffer(torch.ones(3)) if hasattr(torch.nn.parameter, "Buffer") else torch.ones(3)):
        assert describe(t) == torch_answer(t)


@needs_torch
def test_a_tensor_that_requires_a_gradient_is_taken_in_unless_told_otherwise(as_tensor):
    leaf = as_tensor(torch.ones(3)).requires_grad_()
    for t in (leaf, leaf * 2):
        for keep in (False, True):
            assert describe(t, keep=keep) == torch_answer(t)
        with pytest.raises(godwit.InvalidValue, match=r"^w: .*requires a gradient.*\.detach\(\)"):
            describe(t, name="w", no_grad=True)
    assert describe(leaf.detach(), no_grad=True)["n"] == 3


@needs_torch
def test_the_c_functions_may_be_given_as_a_number():
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        pytest.skip("this PyTorch has none")
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

    class First(torch.Tensor):
        __dlpack_c_exchange_api__ = None
        __c_dlpack_exchange_api__ = get_pointer(capsule, b"dlpack_exchange_api")
        data_ptr = None  # so that the other route cannot work

    t = torch.ones(2, 3)
    assert describe(t.as_subclass(First)) == torch_answer(t)


def test_any_buffer_is_taken_in():
    view = memoryview(bytearray(range(24))).cast("i", (2, 3))
    assert describe(view)["shape"] == (2, 3) and describe(view)["dtype"] == "int32"
    assert describe(view)["strides"] == (12, 4)
    for letter, dtype in {"b": "int8", "B": "uint8", "h": "int16", "i": "int32", "l": "int64", "q": "int64",
                          "f": "float32", "d": "float64"}.items():
        a = array.array(letter, [1, 2, 3])
        answer = describe(a)
        assert (answer["dtype"], answer["shape"]) == (dtype, (3,))
        assert answer["address"] == a.buffer_info()[0]
    for kind, dtype in {ctypes.c_int: "int32", ctypes.c_double: "float64", ctypes.c_bool: "bool",
                        ctypes.c_byte: "int8", ctypes.c_longlong: "int64"}.items():
        a = (kind * 4)()
        assert describe(a)["dtype"] == dtype and describe(a)["address"] == ctypes.addressof(a)
    assert not describe(b"abc")["writable"] and describe(bytearray(b"abc"))["writable"]
    assert held_bytes(hold(memoryview(b"abcdef")[::-2])) == b"fdb"


@needs_numpy
@pytest.mark.parametrize("versioned", [False, True])
def test_any_dlpack_object_is_taken_in_and_its_deleter_called_once(versioned):
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = Made(a.ctypes.data, (2, 3), (3, 1), versioned=versioned)
    assert describe(made) == array_answer(a)
    assert made.deleted == 1
    held = hold(made)
    assert made.deleted == 1
    assert held_bytes(held) == a.tobytes()
    del held
    assert made.deleted == 2


def test_dlpack_offsets_and_missing_strides_count():
    memory = array.array("f", range(8))
    made = Made(memory.buffer_info()[0], (2, 3), None, byte_offset=4)
    answer = describe(made)
    assert answer["address"] == memory.buffer_info()[0] + 4
    assert answer["strides"] == (12, 4)
    assert held_bytes(hold(made)) == memory.tobytes()[4:28]


@pytest.mark.parametrize("code, bits, dtype", [
    (1, 8, "uint8"), (0, 8, "int8"), (0, 16, "int16"), (0, 32, "int32"), (0, 64, "int64"), (6, 8, "bool"),
    (2, 16, "float16"), (4, 16, "bfloat16"), (2, 32, "float32"), (2, 64, "float64"), (5, 64, "complex64"),
    (5, 128, "complex128")])
def test_each_dtype_of_dlpack_is_understood(code, bits, dtype):
    memory = array.array("d", range(8))
    assert describe(Made(memory.buffer_info()[0], (2,), (1,), code=code, bits=bits))["dtype"] == dtype


# ---- refusals -------------------------------------------------------------------------


def refused(thing, kind, words, **need):
    for keep in (False, True):
        with pytest.raises(kind, match=words) as caught:
            describe(thing, name="keys", keep=keep, **need)
        assert isinstance(caught.value, godwit.Error)
        assert str(caught.value).startswith("keys: ")


class Number(float):
    pass


@pytest.mark.parametrize("thing", [[1, 2], (1,), "text", 3, 2.5, Number(2.5), None, {}, object(), list, True])
def test_what_is_no_tensor_is_refused(thing):
    refused(thing, godwit.InvalidType, type(thing).__name__ + " is no tensor; pass a tensor or a NumPy array")


@needs_numpy
@pytest.mark.parametrize("name", ["float32", "float64", "int64", "bool_", "complex128"])
def test_a_numpy_scalar_is_refused(name):
    refused(getattr(np, name)(1), godwit.InvalidType, "is no tensor")


@needs_torch
def test_a_class_is_not_an_object_of_it():
    refused(torch.Tensor, godwit.InvalidType, "is no tensor")


@needs_torch
def test_tensors_without_plain_memory_are_refused_with_advice(as_tensor):
    x = torch.arange(6.0).reshape(2, 3)
    refused(x.to_sparse(), godwit.InvalidType, r"torch\.sparse_coo.*\.to_dense\(\)")
    refused(x.to_sparse_csr(), godwit.InvalidType, r"torch\.sparse_csr.*\.to_dense\(\)")
    refused(x.to("meta"), godwit.InvalidType, "no memory.*meta")
    quantized = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
    refused(quantized, godwit.InvalidType, r"quantized.*\.dequantize\(\)")
    refused(as_tensor(torch._efficientzerotensor(3)), godwit.InvalidType, "no memory")


@needs_torch
def test_a_fake_tensor_is_refused():
    fake_tensor = pytest.importorskip("torch._subclasses.fake_tensor")
    with fake_tensor.FakeTensorMode():
        fake = torch.ones(3)
    refused(fake, godwit.InvalidType, "no memory|cannot be reached")


@needs_torch
def test_a_lazily_changed_view_is_refused_with_advice(as_tensor):
    z = torch.ones(2, 3, dtype=torch.complex64)
    refused(as_tensor(z.conj()), godwit.InvalidValue, r"conjugated.*\.resolve_conj\(\)")
    negated = z.conj().imag
    assert negated.is_neg()
    for view in (negated, negated.t(), negated[0], negated[:1, :1], negated[0, 0], negated.unsqueeze(1).expand(2, 4, 3)):
        refused(as_tensor(view), godwit.InvalidValue, r"negated.*\.resolve_neg\(\)")
    for fine in (z, z.imag, z.real, z.conj().real, z.conj().resolve_conj(), negated.resolve_neg(), negated.clone()):
        assert describe(as_tensor(fine)) == torch_answer(fine)


@needs_torch
@pytest.mark.parametrize("name", ["uint16", "uint32", "uint64", "float8_e4m3fn", "complex32"])
def test_a_torch_dtype_that_is_not_known_is_named(as_tensor, name):
    if not hasattr(torch, name):
        pytest.skip("this PyTorch has none")
    refused(as_tensor(torch.zeros(3).to(getattr(torch, name))), godwit.InvalidType, f"{name} are not supported")


@needs_numpy
@pytest.mark.parametrize("thing, words", [
    ("np.zeros(3, object)", "Python objects"),
    ("np.zeros(3, 'u2')", "uint16"),
    ("np.zeros(3, 'u8')", "uint64"),
    ("np.zeros(3, 'U4')", "<U4"),
    ("np.zeros(3, 'S4')", "S4"),
    ("np.zeros(3, 'M8[s]')", "datetime64"),
    ("np.zeros(3, np.longdouble)", "float128"),
    ("np.zeros(3, [('a', 'i4'), ('b', 'f4')])", "not supported"),
    ("np.zeros(3, '>i4')", r"other order.*newbyteorder"),
    ("np.zeros(3, '>c16')", r"other order"),
])
def test_a_numpy_dtype_that_cannot_be_used_is_named(thing, words):
    refused(eval(thing), godwit.InvalidType, words)


def test_a_buffer_format_that_is_not_known_is_shown():
    refused(array.array("H", [1]), godwit.InvalidType, "format 'H'")
    refused((ctypes.c_uint32 * 2)(), godwit.InvalidType, "format '<I'")


@pytest.mark.parametrize("swapped", [True, False])
def test_a_buffer_in_the_other_byte_order_is_refused(swapped):
    kind = ctypes.c_int32.__ctype_be__ if swapped else ctypes.c_int32.__ctype_le__
    if sys.byteorder == "big":
        kind = ctypes.c_int32.__ctype_le__ if swapped else ctypes.c_int32.__ctype_be__
    if swapped:
        refused((kind * 2)(), godwit.InvalidType, "other order")
    else:
        assert describe((kind * 2)())["dtype"] == "int32"


@needs_torch
@needs_numpy
def test_what_must_be_contiguous_is_refused_if_it_is_not(as_tensor):
    advice = r"not contiguous \(shape \(3, 2\), strides in bytes \(4, 12\)\).*contiguous\(\)"
    refused(as_tensor(torch.ones(2, 3).t()), godwit.InvalidValue, advice, contiguous=True)
    refused(np.ones((2, 3), "f4").T, godwit.InvalidValue, advice, contiguous=True)
    for fine in (torch.ones(2, 3), torch.ones(2, 1).t(), torch.ones(0, 3).t(), torch.ones(2, 3)[1:], torch.tensor(1.0),
                 torch.ones(1).expand(1)):
        assert describe(as_tensor(fine), contiguous=True)["n"] == fine.numel()


@needs_numpy
def test_what_must_be_written_to_is_refused_if_it_cannot_be():
    a = np.ones(3)
    a.flags.writeable = False
    refused(a, godwit.InvalidValue, "read-only; pass a copy", writable=True)
    refused(b"abc", godwit.InvalidValue, "read-only", writable=True)
    assert describe(np.ones(3), writable=True)["writable"]


@needs_torch
def test_entries_that_share_memory_cannot_be_written_to(as_tensor):
    refused(as_tensor(torch.ones(1).expand(4)), godwit.InvalidValue, "share their memory", writable=True)
    assert describe(as_tensor(torch.ones(1).expand(4)))["strides"] == (0,)


def test_read_only_and_copied_dlpack_memory_cannot_be_written_to():
    memory = array.array("f", range(8))
    for flags in (1, 2):
        made = Made(memory.buffer_info()[0], (2,), (1,), versioned=True, flags=flags)
        refused(made, godwit.InvalidValue, "read-only", writable=True)
        assert not describe(made)["writable"]
        assert made.deleted == made.given


@needs_torch
@needs_numpy
def test_a_dtype_that_is_not_allowed_is_named_with_those_that_are(as_tensor):
    words = r"float32 and must be int32 or int64; .*torch\.int64.*astype\('int64'\)"
    for thing in (as_tensor(torch.ones(3)), np.ones(3, "f4")):
        refused(thing, godwit.InvalidType, words, dtypes=["int64", "int32"])
        assert describe(thing, dtypes=["float32"])["dtype"] == "float32"


@needs_numpy
def test_misaligned_entries_are_refused():
    shifted = np.frombuffer(bytearray(33), np.uint8)[1:].view("i8")
    refused(shifted, godwit.InvalidValue, "multiples of their size")
    packed = np.zeros(4, np.dtype([("a", "i1"), ("b", "f8")]))["b"]
    refused(packed, godwit.InvalidValue, "multiples of their size")
    aligned = np.zeros(4, np.dtype([("a", "i8"), ("b", "f8")]))["b"]
    assert describe(aligned)["strides"] == (16,)


@needs_torch
@needs_numpy
def test_eight_dimensions_are_possible_and_nine_are_refused(as_tensor):
    for ones in (lambda *shape: as_tensor(torch.ones(*shape)), lambda *shape: np.ones(shape, "f4")):
        assert len(describe(ones(*[1] * 8))["shape"]) == 8
        refused(ones(*[1] * 9), godwit.InvalidValue, "9 dimensions and 8 are possible")


def test_memory_elsewhere_is_refused_with_its_device():
    memory = array.array("f", range(8))
    made = Made(memory.buffer_info()[0], (2,), (1,), device=2)
    refused(made, godwit.InvalidType, r"on a device of DLPack's type 2 .*\.cpu\(\)")
    made.device = "cuda:1"
    refused(made, godwit.InvalidType, r"its memory is on cuda:1 .*\.cpu\(\)")
    assert made.deleted == made.given


@pytest.mark.parametrize("change, kind, words", [
    (dict(version=(2, 0), versioned=True), godwit.Unsupported, "version 2 of DLPack"),
    (dict(lanes=4), godwit.InvalidType, "not supported"),
    (dict(code=3, bits=64), godwit.InvalidType, "not supported"),
    (dict(bits=4), godwit.InvalidType, "not supported"),
    (dict(shape=(-1,)), godwit.InvalidValue, "size -1"),
    (dict(address=0), godwit.InvalidType, "no memory"),
    (dict(shape=(2**62, 2**62), strides=None), godwit.InvalidValue, "reach out of memory"),
    (dict(shape=(2**32, 2**32), strides=(0, 0)), godwit.InvalidValue, "reach out of memory"),
    (dict(strides=(2**61,)), godwit.InvalidValue, "reach out of memory"),
    (dict(strides=(-2**60,)), godwit.InvalidValue, "reach out of memory"),
    (dict(byte_offset=2**64 - 8), godwit.InvalidValue, "reach out of memory"),
])
def test_odd_dlpack_memory_is_refused_and_given_back(change, kind, words):
    memory = array.array("d", range(8))
    made = Made(**{**dict(address=memory.buffer_info()[0], shape=(2,), strides=(1,)), **change})
    refused(made, kind, words)
    assert made.given > 0 and made.deleted == made.given


def test_what_a_dlpack_object_raises_is_shown():
    class Broken:
        def __dlpack__(self, **keywords):
            raise BufferError("the moon is full\nand much more")

    refused(Broken(), godwit.InvalidType, r"cannot be reached \(the moon is full\)")
    with pytest.raises(godwit.InvalidType) as caught:
        describe(Broken())
    assert isinstance(caught.value.__cause__, BufferError)


def test_a_keyboard_interrupt_is_not_swallowed():
    class Interrupted:
        def __dlpack__(self, **keywords):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        describe(Interrupted())


def test_a_used_capsule_is_refused():
    memory = array.array("f", range(8))
    made = Made(memory.buffer_info()[0], (2,), (1,))
    capsule = made.__dlpack__()

    class Again:
        def __dlpack__(self):
            return capsule

    assert describe(Again())["n"] == 2
    with pytest.raises(godwit.InvalidType, match="no fresh capsule"):
        describe(Again())
    assert made.deleted == 1


# ---- giving back ----------------------------------------------------------------------


def subjects():
    yield bytearray(16)
    yield Made(array_for_ever.buffer_info()[0], (2,), (1,))
    yield Made(array_for_ever.buffer_info()[0], (2,), (1,), versioned=True)
    if np is not None:
        yield np.ones((3, 4))
        yield np.ones((3, 4), "f2").T
    if torch is not None:
        for convert in AS_TENSOR.values():
            yield convert(torch.ones(3, 4))
            yield convert(torch.ones(3, 4, dtype=torch.complex64))
            yield convert(torch.ones(3, 4)).requires_grad_()


array_for_ever = array.array("f", range(8))


def test_taking_in_leaves_no_reference_behind():
    for thing in subjects():
        before = sys.getrefcount(thing)
        for keep in (False, True):
            for _ in range(50):
                describe(thing, keep=keep)
                touch(thing)
                hold(thing, keep=keep)
        assert sys.getrefcount(thing) == before, type(thing)


def test_refusing_leaves_no_reference_behind():
    for thing in subjects():
        before = sys.getrefcount(thing)
        for _ in range(50):
            for need in (dict(dtypes=["int8"]), dict(dtypes=["int8"], keep=True)):
                with pytest.raises(godwit.InvalidType):
                    describe(thing, **need)
        gc.collect()
        assert sys.getrefcount(thing) == before, type(thing)


def test_taking_in_leaves_no_memory_behind():
    things = list(subjects())

    def work():
        for thing in things:
            for keep in (False, True):
                describe(thing, keep=keep)
                hold(thing, keep=keep)
                try:
                    describe(thing, dtypes=["int8"], keep=keep)
                except godwit.InvalidType:
                    pass

    def blocks():
        gc.collect()
        return sys.getallocatedblocks()

    def growth():
        before = blocks()
        for _ in range(500):
            work()
        return blocks() - before

    for _ in range(20):
        work()
    # One block lost at a single kind of intake would be 500, every time; threads of PyTorch that
    # still warm up may take some as well, but not every time.
    assert min(growth() for _ in range(3)) < 250


def test_what_is_held_stays_until_it_is_given_back():
    class Weak(bytearray):
        pass

    thing = Weak(b"12345678")
    seen, held = weakref.ref(thing), hold(thing)
    del thing
    gc.collect()
    assert seen() is not None and held_bytes(held) == b"12345678"
    with pytest.raises(BufferError):
        seen().append(1)  # it cannot move meanwhile
    del held
    gc.collect()
    assert seen() is None


@needs_torch
def test_what_is_kept_stays_even_if_the_tensor_gets_other_memory(as_tensor):
    t = as_tensor(torch.full((100000,), 7.0))
    address, expected = t.data_ptr(), torch_bytes(t)
    held = hold(t, keep=True)
    t.data = torch.zeros(3)
    others = [torch.full((100000,), 1.0) for _ in range(20)]  # would take the memory, were it free
    assert all(other.data_ptr() != address for other in others)
    assert held_bytes(held) == expected


@needs_torch
def test_a_tensor_that_is_held_is_released_with_it(as_tensor):
    t = as_tensor(torch.ones(3))
    for keep in (False, True):
        before = sys.getrefcount(t)
        held = hold(t, keep=keep)
        assert held_bytes(held) == torch_bytes(t)
        del held
        assert sys.getrefcount(t) == before


def test_many_types_can_come_and_go():
    made = [type(f"Type{i}", (bytearray,), {}) for i in range(500)]
    for _ in range(2):
        for kind in made:
            assert describe(kind(b"abc"))["n"] == 3
    seen = [weakref.ref(kind) for kind in made]
    del made, kind
    gc.collect()
    # Types in the cache are kept, so that their address means them; the rest can go.
    assert sum(ref() is not None for ref in seen) <= 64


# ---- independence -------------------------------------------------------------------------


def test_neither_torch_nor_numpy_is_imported(program):
    out = program.run("""
        import sys, godwit
        from godwit._native import describe, touch
        touch(bytearray(3))
        try:
            describe([1])
        except godwit.InvalidType:
            print("torch" in sys.modules, "numpy" in sys.modules)
    """)
    assert out == "False False\n"


def test_the_module_can_be_loaded_twice(program):
    program.run("""
        import sys
        import godwit._native as first
        del sys.modules["godwit._native"]
        import importlib
        second = importlib.import_module("godwit._native")
        assert first is not second and first.Error is not second.Error
        for module in (first, second):
            module.touch(bytearray(3))
            try:
                module.describe([1])
            except module.InvalidType:
                pass
        del first, second
        import gc; gc.collect()
    """)


def test_touch_and_nothing_take_any_number_of_arguments():
    assert touch() is None and _native.nothing() is None
    assert touch(b"a", bytearray(2)) is None and _native.nothing(1, [2]) is None
    with pytest.raises(godwit.InvalidType):
        touch(b"a", [1])
