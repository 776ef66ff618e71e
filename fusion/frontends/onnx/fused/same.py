"""Operators that ONNX took over, under another domain: as they are, or by the operators that they became."""

from __future__ import annotations

import onnx

from fusion.frontends.onnx.fused.body import Body, expands


@expands("DequantizeLinear", "GatherND", "Gelu", "QuantizeLinear", "Range", "Trilu")
def same(body: Body) -> list[str]:
    """The node in ONNX's own domain."""
    proto = body.node.proto
    given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in proto.attribute}
    return body.ops(proto.op_type, len(proto.output), *proto.input, **given)


@expands("ExpandDims")
def expand_dims(body: Body) -> str:
    return body.op("Unsqueeze", body.x(0), body.op("Reshape", body.cast(body.x(1), "int64"), body.const([1])))
