"""Runs a converter of TVM's own ONNX importer on one node."""

from __future__ import annotations

from typing import Any

import onnx
from tvm import relax
from tvm.relax import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from fusion.declined import Declined
from fusion.failures import last_line
from fusion.frontends.onnx.node import Node

_TABLE = onnx_frontend._get_convert_map()
# Converters whose results are wrong, and why.
_IN_HALF = {
    "AveragePool": "it sums in float16",
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), "it computes in float16, where ends of dtypes are not"),
}
_WRONG = {
    "AffineGrid": "it has no grid of one pixel",
    "NonMaxSuppression": "it selects no box where the limit of boxes is no constant, so it is not used at all",
    "ReduceLogSum": "it takes no logarithm over no axes",
    "Resize": "it rounds integers to the nearest and knows nothing of antialias",
    "RoiAlign": "it takes the maximum of other sums, and bfloat16 ends the process",
    **dict.fromkeys(("ScatterElements", "ScatterND"), "it adds and multiplies booleans"),
    "Squeeze": "it reads no axes where as many are named as there are",
    "Unsqueeze": "it takes an axis twice",
    "TopK": "operator set 10 has k as an operand, which it does not read",
}


def tvm_converts(domain: str, operator: str) -> bool:
    """Return whether TVM has a converter for an operator."""
    return operator in _TABLE and not domain


def convert_with_tvm(node: Node) -> list[Expr]:
    """Return the outputs of `node` as TVM's importer would compute them.

    Raises:
        Declined: TVM has no converter, or its converter fails.
    """
    if not tvm_converts(node.proto.domain, node.op):
        raise Declined("no converter")
    converter = _TABLE[node.op]
    if node.op in _IN_HALF and any(node.dtype(at) == "float16" for at in range(min(len(node.proto.input), 2))):
        raise Declined(f"TVM's converter: {_IN_HALF[node.op]}")
    if node.op in _WRONG:
        raise Declined(f"TVM's converter: {_WRONG[node.op]}")
    inputs = onnx_frontend.onnx_input(node.x(i) if node.has(i) else None for i in range(len(node.proto.input)))
    attributes = _attributes(node.proto)
    try:
        result = converter.get_converter(node.opset)(node.builder, inputs, attributes, [dict(node.scope.exprs), {}])
        result = node.builder.normalize(result) if isinstance(result, relax.Expr) else result
    except MemoryError:
        raise
    except Exception as error:  # TVM raises whatever its checks raise; each of them means that this node is not for it
        raise Declined(f"TVM's converter: {last_line(error)}") from error
    return _fields(result, node)


def _attributes(proto: onnx.NodeProto) -> dict[str, Any]:
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
    attributes = {name: tuple(value) if isinstance(value, list) else value for name, value in attributes.items()}
    return {**attributes, "tvm_custom": {"name": proto.name, "num_outputs": len(proto.output)}}


def _fields(result: Any, node: Node) -> list[Expr]:
    if isinstance(result, relax.Tuple):
        return list(result.fields)
    if not isinstance(result, relax.Expr):
        raise Declined("TVM's converter: the result is no tensor")
    if isinstance(result.ty, relax.TupleType):
        bound = node.emit(result)
        return [relax.TupleGetItem(bound, index) for index in range(len(result.ty.fields))]
    return [result]
