"""Hands tensors from TVM to ONNX Runtime and back, without a copy where DLPack knows the dtype."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import tvm
from tvm.runtime import Tensor

# Element types that ONNX Runtime's DLPack converter takes as they are.
_DLPACK_DTYPES = frozenset({"float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16",
                            "uint32", "uint64"})
# Kernels made by TVM assume this alignment of their arguments.
_ALIGNMENT_BYTES = 64


def from_tensor(tensor: Tensor) -> ort.OrtValue:
    """Return `tensor` as an OrtValue."""
    if str(tensor.dtype) in _DLPACK_DTYPES:
        return ort.OrtValue.from_dlpack(tensor)
    return to_value(tensor.numpy())


def to_tensor(value: ort.OrtValue) -> Tensor:
    """Return `value` as a TVM tensor."""
    if _numpy_dtype(value).name in _DLPACK_DTYPES and value.data_ptr() % _ALIGNMENT_BYTES == 0:
        return tvm.runtime.from_dlpack(value)
    return tvm.runtime.tensor(to_array(value))


def to_value(array: np.ndarray) -> ort.OrtValue:
    """Return a tensor, not of strings, as an OrtValue; no copy is made of a contiguous array."""
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    if array.dtype.name in _PLAIN_DTYPES:
        return ort.OrtValue.ortvalue_from_numpy(array)
    raw = np.uint16 if array.dtype.itemsize == 2 else np.uint8
    element = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(raw), element)


_PLAIN_DTYPES = (_DLPACK_DTYPES - {"bfloat16"}) | {"bool"}


def to_array(value: ort.OrtValue) -> np.ndarray:
    """Return a tensor as a numpy array."""
    dtype = _numpy_dtype(value)
    if dtype.name in _PLAIN_DTYPES:
        return value.numpy()
    shape = tuple(value.shape())
    buffer = (ctypes.c_uint8 * (math.prod(shape) * dtype.itemsize)).from_address(value.data_ptr())
    return np.frombuffer(bytes(buffer), dtype=dtype).reshape(shape)


def _numpy_dtype(value: ort.OrtValue) -> np.dtype[Any]:
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.element_type()))
