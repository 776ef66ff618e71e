"""TVM tensors as NumPy arrays and back, without copying, for every dtype including those NumPy itself lacks."""

from __future__ import annotations

import functools
import math
from typing import Any

import ml_dtypes
import numpy as np

from fusion.errors import LimitError
from fusion.runtime import Tensor, tvm_ffi
from fusion.system.cpus import allowed_cpus
from fusion.system.map_in_threads import map_in_threads
from fusion.system.memory import check_memory

ALIGNMENT = 64
"""Bytes: the widest vector and the cache line; no vector of memory of ours lies in two lines."""

_LARGE = 1 << 20
"""Bytes that take far longer to copy than to start threads: BERT-base's 340 MB of packed weights took 0.62 s in one
thread, 0.36 to 0.51 in two."""


@functools.cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype of TVM's name of it, taking bfloat16 and the float8 family from `ml_dtypes`."""
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def tensor_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """Return the size in bytes of a dense tensor."""
    return math.prod(shape) * numpy_dtype(dtype).itemsize


def fills_bytes(dtype: str) -> bool:
    """Whether every element of `dtype` fills whole bytes; TVM packs int4, float4 and float6 tighter than NumPy does."""
    return bool(tvm_ffi.dtype(dtype).bits % 8 == 0) or dtype == "bool"


def needs_carrier(dtype: str) -> bool:
    """Whether NumPy lacks `dtype`, so that views of it go through an unsigned integer of its width."""
    return dtype in _CARRIERS


def as_numpy(tensor: Tensor) -> np.ndarray:
    """Return a view of `tensor`; it keeps the memory alive."""
    dtype = str(tensor.dtype)
    if dtype not in _CARRIERS:
        return np.from_dlpack(tensor)
    return np.from_dlpack(view(tensor, _CARRIERS[dtype])).view(numpy_dtype(dtype))


def as_tensor(array: np.ndarray) -> Tensor:
    """Return a view of the contiguous, writable `array`; it keeps the memory alive."""
    dtype = _name_of(array.dtype)
    if not array.size:
        # NumPy's strides of an array without elements are not those that generated code checks for.
        return view(tvm_ffi.from_dlpack(np.zeros(0, np.uint8)), dtype, array.shape)
    if dtype not in _CARRIERS:
        return tvm_ffi.from_dlpack(array)
    return view(tvm_ffi.from_dlpack(array.view(_CARRIERS[dtype])), dtype)


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    return str(dtype.name)


def allocate(size: int, *, zeroed: bool = True) -> np.ndarray:
    """Return `size` bytes, zeros unless told otherwise, as uint8, at an address that is a multiple of `ALIGNMENT`.

    Raises:
        LimitError: There is not that much memory.
    """
    check_memory((size,), 1, "memory of a compiled module")
    try:
        raw = (np.zeros if zeroed else np.empty)(size + ALIGNMENT, np.uint8)
    except MemoryError as error:
        raise LimitError(f"there is no memory for {size:,} bytes", where="memory of a compiled module") from error
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


def allocate_tensor(shape: tuple[int, ...], dtype: str) -> Tensor:
    """Return an aligned tensor of zeros."""
    return as_tensor(allocate(tensor_bytes(shape, dtype)).view(numpy_dtype(dtype)).reshape(shape))


def aligned_copy(array: np.ndarray) -> Tensor:
    """Return a copy of `array` as an aligned tensor; threads share a large one, whose memory the system gives page by
    page as it is written."""
    tensor = allocate_tensor(array.shape, array.dtype.name)
    copied = as_numpy(tensor)
    if array.nbytes < _LARGE or len(array) < allowed_cpus():
        copied[...] = array
        return tensor
    ends = [len(array) * part // allowed_cpus() for part in range(allowed_cpus() + 1)]
    map_in_threads(lambda part: np.copyto(copied[part], array[part]), map(slice, ends, ends[1:]))
    return tensor


def view(tensor: Tensor, dtype: str, shape: tuple[int, ...] | None = None) -> Tensor:
    """Return the memory of `tensor` under another dtype of the same width, or another shape of as many elements."""
    extents = tvm_ffi.Shape(tensor.shape if shape is None else shape)
    return _create_view(tensor, extents, tvm_ffi.dtype(dtype), 0)


_create_view = tvm_ffi.get_global_func("runtime.TVMTensorCreateView")


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays have the same dtype, shape and bits: NaN is the same NaN, -0.0 is not 0.0."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def byte_view(tensor: Tensor) -> np.ndarray:
    """Return the memory of `tensor` as a one-dimensional uint8 array."""
    array = as_numpy(tensor)
    return array.reshape(-1).view(np.uint8)


# DLPack exchange in NumPy knows only NumPy's own dtypes, so the others travel as unsigned integers of their width.
_CARRIERS = {"bfloat16": "uint16"} | {name: "uint8" for name in vars(ml_dtypes) if name.startswith("float8_")}
