"""ONNX types as shapes and dtype names."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import onnx
from onnx import TensorProto, TypeProto
from onnx.helper import tensor_dtype_to_np_dtype

from fusion.errors import InvalidModelError
from fusion.signature import TensorSpec
from fusion.tensors import numpy_dtype

Shape = tuple[int, ...]

# What TVM's own lowering handles (bfloat16 through float32); everything else runs on the fallback.
NATIVE_DTYPES = frozenset(
    {
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
        TensorProto.BFLOAT16,
        TensorProto.DOUBLE,
        TensorProto.BOOL,
        TensorProto.INT8,
        TensorProto.INT16,
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.UINT8,
        TensorProto.UINT16,
        TensorProto.UINT32,
        TensorProto.UINT64,
    }
)

HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
"""What is computed in float32."""
FLOATING = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})


def is_tensor(kind: TypeProto | None) -> bool:
    """Return whether `kind` is a dense tensor type with an element type other than string."""
    return (
        kind is not None
        and kind.WhichOneof("value") == "tensor_type"
        and kind.tensor_type.elem_type not in (TensorProto.UNDEFINED, TensorProto.STRING)
    )


def dims_of(kind: TypeProto) -> tuple[int | None, ...] | None:
    """Return the shape of a tensor type, None for an unknown dimension, or None where the rank is unknown."""
    tensor = kind.tensor_type
    if not tensor.HasField("shape"):
        return None
    sizes = tuple([dim.dim_value for dim in tensor.shape.dim])
    return sizes if not sizes or min(sizes) > 0 else tuple([dim_of(dim) for dim in tensor.shape.dim])


def dim_of(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    """Return the size, or None where it is unknown; some exporters write -1 for that."""
    size: int = dim.dim_value  # 0 where there is none
    return size if size > 0 or (size == 0 and dim.HasField("dim_value")) else None


def known_dims(kind: TypeProto | None) -> Shape | None:
    """Return the shape of a tensor type, or None unless every dimension is known."""
    if kind is None or kind.WhichOneof("value") != "tensor_type":
        return None
    dims = dims_of(kind)
    return None if dims is None or None in dims else dims  # type: ignore[return-value]  # no None is in it


_OTHERS: dict[int, str] = {TensorProto.STRING: "string", TensorProto.UNDEFINED: "undefined"}


@cache
def dtype_name(elem_type: int) -> str:
    """Return numpy's (or ml_dtypes') name of an ONNX element type, "string" for strings, "undefined" for none.

    Raises:
        InvalidModelError: ONNX has no such type.
    """
    if elem_type in _OTHERS:
        return _OTHERS[elem_type]
    try:
        return str(np.dtype(tensor_dtype_to_np_dtype(elem_type)))
    except KeyError:
        raise InvalidModelError(f"element type {elem_type} is none that a tensor can have") from None


@cache
def element_bytes(elem_type: int) -> int:
    """Return the bytes of an element; 1 where that is not known, as of texts.

    Raises:
        InvalidModelError: ONNX has no such type.
    """
    name = dtype_name(elem_type)
    return 1 if name in _OTHERS.values() else numpy_dtype(name).itemsize


def data_bytes(tensor: TensorProto) -> int:
    """Return the bytes of what a tensor holds, by its shape: protobuf tells them of raw data by copying that."""
    elements: int = math.prod(tensor.dims)
    return elements * element_bytes(tensor.data_type)


def type_name(kind: TypeProto) -> str:
    """Return the dtype name of a tensor, or ONNX's notation of any other type."""
    match kind.WhichOneof("value"):
        case "tensor_type":
            return dtype_name(kind.tensor_type.elem_type)
        case "sequence_type":
            return f"seq({_held_name(kind.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({_held_name(kind.optional_type.elem_type)})"
        case "map_type":
            return f"map({dtype_name(kind.map_type.key_type)},{_held_name(kind.map_type.value_type)})"
        case "sparse_tensor_type":
            return f"sparse_tensor({dtype_name(kind.sparse_tensor_type.elem_type)})"
        case other:
            return f"{other}()" if other else "unknown"


def _held_name(kind: TypeProto) -> str:
    return f"tensor({type_name(kind)})" if kind.HasField("tensor_type") else type_name(kind)


def type_of_spec(spec: TensorSpec) -> TypeProto:
    """Return the type of a value of which everything is known."""
    element = onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype(spec.dtype))
    return onnx.helper.make_tensor_type_proto(element, spec.shape)


def type_of_tensor(tensor: TensorProto) -> TypeProto:
    """Return the type of a constant."""
    return onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
