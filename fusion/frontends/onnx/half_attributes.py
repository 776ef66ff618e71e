"""Attributes that float16 has no number for: ONNX Runtime computes with them in float32."""

from __future__ import annotations

import math

from onnx import TensorProto

from fusion.frontends.onnx.node import Node

_LARGEST = 65504.0


def beyond_half(node: Node) -> str:
    """Return which attribute of a node on float16 is finite and too large for it; "" if none is."""
    kinds = [node.scope.types.get(name) for name in node.proto.input]
    half = any(kind is not None and kind.tensor_type.elem_type == TensorProto.FLOAT16 for kind in kinds)
    if not half or node.proto.domain not in ("", "ai.onnx"):
        return ""
    for attribute in node.proto.attribute:
        for number in (attribute.f, *attribute.floats):
            if _LARGEST < abs(number) < math.inf:
                return f"{attribute.name} is {number:g}, which float16 has no number for"
    return ""
