"""Results of types that numpy lacks, for models that return sequences or optionals beside them: cast to float32, which
holds all their numbers, and back.

ONNX Runtime returns such tensors as values of its own only; of those it takes no sequences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

_LACKING: Mapping[str, np.dtype[Any]] = {
    f"tensor({name})": np.dtype(dtype)
    for name, dtype in {
        "bfloat16": ml_dtypes.bfloat16,
        "float8e4m3fn": ml_dtypes.float8_e4m3fn,
        "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
        "float8e5m2": ml_dtypes.float8_e5m2,
        "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
        "int4": ml_dtypes.int4,
        "uint4": ml_dtypes.uint4,
    }.items()
}


def lacking_dtypes(kinds: Sequence[str]) -> tuple[np.dtype[Any] | None, ...]:
    """Return the dtype of each output whose type, as ONNX Runtime calls it, numpy lacks, None for the others."""
    return tuple(_LACKING.get(kind) for kind in kinds)


def cast_outputs(onnx_bytes: bytes, dtypes: Sequence[np.dtype[Any] | None]) -> bytes:
    """Return the model in `onnx_bytes` with the outputs that have a dtype in `dtypes` cast to float32."""
    model = onnx.ModelProto.FromString(onnx_bytes)
    used = {name for node in model.graph.node for name in (*node.input, *node.output)}
    for output, dtype in zip(model.graph.output, dtypes, strict=True):
        if dtype is not None:
            wide = f"{output.name}_as_float32"
            while wide in used:
                wide += "_"
            model.graph.node.append(helper.make_node("Cast", [output.name], [wide], to=TensorProto.FLOAT))
            output.CopyFrom(helper.make_tensor_value_info(wide, TensorProto.FLOAT, None))
    return bytes(model.SerializeToString())
