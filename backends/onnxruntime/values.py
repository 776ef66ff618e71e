"""Hands tensors from TVM to ONNX Runtime and back, without a copy where DLPack knows the dtype."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto

from fusion.runtime import Tensor, tvm_ffi
from fusion.tensors import aligned_copy, as_numpy

# Element types that ONNX Runtime's DLPack converter takes as they are.
_DLPACK_DTYPES = frozenset(
    {
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    }
)
# Those that numpy itself has.
_PLAIN_DTYPES = (_DLPACK_DTYPES - {"bfloat16"}) | {"bool"}
# Elements that ONNX Runtime packs into a byte, the first into the lowest bits; numpy gives each a byte of its own.
_PER_BYTE = {TensorProto.INT4: 2, TensorProto.UINT4: 2, TensorProto.INT2: 4, TensorProto.UINT2: 4}


def from_tensor(tensor: Tensor) -> ort.OrtValue:
    """Return `tensor` as an OrtValue."""
    if str(tensor.dtype) in _DLPACK_DTYPES:
        return ort.OrtValue.from_dlpack(tensor)
    return to_value(as_numpy(tensor))


def to_tensor(value: ort.OrtValue) -> Tensor:
    """Return `value` as a TVM tensor."""
    if _numpy_dtype(value).name in _DLPACK_DTYPES:
        return tvm_ffi.from_dlpack(value)
    return aligned_copy(to_array(value))


def to_value(array: np.ndarray) -> ort.OrtValue:
    """Return a tensor, not of strings, as an OrtValue; no copy is made of a contiguous array."""
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    if array.dtype.name in _PLAIN_DTYPES:
        return ort.OrtValue.ortvalue_from_numpy(array)
    element = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    if element in _PER_BYTE:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(_pack(array, _PER_BYTE[element]), element)
    raw = np.uint16 if array.dtype.itemsize == 2 else np.uint8
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(raw), element)


def _pack(array: np.ndarray, count: int) -> np.ndarray:
    """Return bytes of the shape of `array`, the first of them holding its elements, `count` a byte, the rest unused."""
    bits = 8 // count
    flat = array.view(np.uint8).reshape(-1) & ((1 << bits) - 1)
    padded = np.zeros(-(-flat.size // count) * count, dtype=np.uint8)
    padded[: flat.size] = flat
    shifts = np.arange(count, dtype=np.uint8) * bits
    packed = np.bitwise_or.reduce(padded.reshape(-1, count) << shifts, axis=1)
    held = np.zeros(flat.size, dtype=np.uint8)
    held[: packed.size] = packed
    return held.reshape(array.shape)


def _unpack(data: np.ndarray, count: int, size: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return `size` elements of `dtype` from packed bytes."""
    bits = 8 // count
    shifts = np.arange(count, dtype=np.uint8) * bits
    fields = ((data[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:size]
    if not dtype.name.startswith("uint"):
        sign = 1 << (bits - 1)
        fields = (fields.astype(np.int8) ^ sign) - sign
    return fields.astype(dtype)


def to_array(value: ort.OrtValue) -> np.ndarray:
    """Return a tensor as a numpy array."""
    dtype = _numpy_dtype(value)
    if dtype.name in _PLAIN_DTYPES:
        array: np.ndarray = value.numpy()
        return array
    shape = tuple(value.shape())
    if value.element_type() in _PER_BYTE:
        count, size = _PER_BYTE[value.element_type()], math.prod(shape)
        packed = (ctypes.c_uint8 * -(-size // count)).from_address(value.data_ptr())
        return _unpack(np.frombuffer(bytes(packed), dtype=np.uint8), count, size, dtype).reshape(shape)
    buffer = (ctypes.c_uint8 * (math.prod(shape) * dtype.itemsize)).from_address(value.data_ptr())
    return np.frombuffer(bytes(buffer), dtype=dtype).reshape(shape)


def _numpy_dtype(value: ort.OrtValue) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.element_type()))
    return dtype
