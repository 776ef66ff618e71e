"""Tensors on a device that go from library to library: DLPack's structures, and the capsules that hold them.

DLPack 1.0 and 0.8 (`dlpack.h`), and the Python specification of `__dlpack__`, by which the consumer says on which
stream it will read.
"""

from __future__ import annotations

import ctypes
import weakref
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

import ml_dtypes
import numpy as np

CUDA, CUDA_MANAGED = 2, 13
"""DLPack's numbers of devices."""
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
"""DLPack's numbers of kinds of dtypes by NumPy's letters."""
_BFLOAT = 4
_NAME, _VERSIONED = b"dltensor", b"dltensor_versioned"
_USED, _USED_VERSIONED = b"used_dltensor", b"used_dltensor_versioned"


class _DlTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8),
        ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _DlTensor), ("manager", c_void_p), ("deleter", c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32), ("minor", c_uint32), ("manager", c_void_p), ("deleter", c_void_p), ("flags", c_uint64),
        ("tensor", _DlTensor),
    ]  # fmt: skip


_Deleter = ctypes.CFUNCTYPE(None, c_void_p)
_python = ctypes.pythonapi
_is_valid = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, c_char_p)(("PyCapsule_IsValid", _python))
_pointer = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, c_char_p)(("PyCapsule_GetPointer", _python))
_rename = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, c_char_p)(("PyCapsule_SetName", _python))


class ForeignTensor:
    """A tensor of another library, which is held as long as this object.

    Attributes:
        address: Of its first element.
        shape: Its extents.
        dtype: NumPy's.
        is_contiguous: Whether it is dense, with the last axis innermost.
    """

    def __init__(self, capsule: Any) -> None:
        """Take what `__dlpack__` returned.

        Raises:
            ValueError: It is no capsule of DLPack, was taken before, or has a dtype that NumPy and ml_dtypes lack.
        """
        managed, used = _managed(capsule)
        _rename(capsule, used)
        if managed.deleter:
            weakref.finalize(self, _Deleter(managed.deleter), ctypes.addressof(managed)).atexit = False
        tensor = managed.tensor
        self.shape = tuple(tensor.shape[: tensor.ndim])
        self.dtype = _dtype(tensor.code, tensor.bits, tensor.lanes)
        self.address = (tensor.data or 0) + tensor.byte_offset
        strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _dense(self.shape)
        steps = zip(strides, _dense(self.shape), self.shape, strict=True)
        self.is_contiguous = 0 in self.shape or all(size == 1 or own == dense for own, dense, size in steps)

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)


def _managed(capsule: Any) -> tuple[Any, bytes]:
    """Return what is in a capsule, and the name that says that it was taken.

    Raises:
        ValueError: It is no capsule of DLPack, or was taken.
    """
    for name, used, kind in ((_VERSIONED, _USED_VERSIONED, _ManagedVersioned), (_NAME, _USED, _Managed)):
        if _is_valid(capsule, name):
            return kind.from_address(_pointer(capsule, name)), used
    raise ValueError("it is no capsule of DLPack, or one that was taken before")


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    steps = [1]
    for size in reversed(shape[1:]):
        steps.insert(0, steps[0] * size)
    return tuple(steps[: len(shape)])


def _dtype(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    if lanes == 1 and (code, bits) == (_BFLOAT, 16):
        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    letter = next((letter for letter, number in _CODES.items() if number == code), None)
    if letter is None or lanes != 1 or bits % 8:
        raise ValueError(f"its elements have DLPack's type {code} of {bits} bits and {lanes} lanes")
    return np.dtype(f"{letter}{bits // 8}")


class _Memory:
    """Memory of a device as NumPy takes it for an array, which nobody reads: that holds this, and this the owner."""

    def __init__(self, owner: object, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3, "data": (address, False), "shape": shape, "typestr": f"<u{dtype.itemsize}",
        }  # fmt: skip


def export(
    owner: object, address: int, device: int, shape: tuple[int, ...], dtype: np.dtype[Any], *, versioned: bool
) -> Any:
    """Return a capsule of a dense tensor on a CUDA device, whose memory is there as long as `owner`.

    NumPy makes it, as of memory of its own, and here it is told where that is: what frees a tensor may be called while
    an exception is on its way, which a function of Python's, called by ctypes, would lose.
    """
    array = np.asarray(_Memory(owner, address, shape, dtype))
    capsule = array.__dlpack__(max_version=(1, 0)) if versioned else array.__dlpack__()
    managed, _ = _managed(capsule)
    managed.tensor.device_type, managed.tensor.device_id = CUDA, device
    managed.tensor.code = _BFLOAT if dtype == ml_dtypes.bfloat16 else _CODES[dtype.kind]
    return capsule
