"""Makes DLPack capsules by hand, to try what no library at hand would give out."""

import ctypes


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("owner", ctypes.c_void_p), ("deleter", Deleter)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("owner", ctypes.c_void_p),
                ("deleter", Deleter), ("flags", ctypes.c_uint64), ("tensor", Tensor)]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Made:
    """An object with __dlpack__.  It counts the capsules `given` and the times one was `deleted`.

    An unversioned one does not know the argument max_version, as was usual then.
    """

    def __init__(self, address, shape, strides, code=2, bits=32, lanes=1, device=1, byte_offset=0,
                 versioned=False, version=(1, 0), flags=0):
        self.given = self.deleted = 0
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        tensor = Tensor(address, device, 0, len(shape), code, bits, lanes, self._shape, self._strides, byte_offset)
        self._deleter = Deleter(self._delete)
        self._versioned = versioned
        if versioned:
            self._managed = ManagedVersioned(*version, None, self._deleter, flags, tensor)
        else:
            self._managed = Managed(tensor, None, self._deleter)

    def _delete(self, address):
        assert address == ctypes.addressof(self._managed)
        self.deleted += 1

    def __dlpack__(self, **keywords):
        if keywords and not self._versioned:
            raise TypeError("__dlpack__() got an unexpected keyword argument")
        self.given += 1
        name = b"dltensor_versioned" if self._versioned else b"dltensor"
        return _new_capsule(ctypes.addressof(self._managed), name, None)
