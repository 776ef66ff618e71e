"""An ONNX model with every float32 made float64; the weights keep their exact values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

# Attributes that name an element type.
_TYPE_ATTRIBUTES = frozenset({"to", "dtype"})
# Attributes of Constant that hold plain floats and turn into a tensor, whose type can be chosen.
_PLAIN_FLOATS: dict[str, Callable[[onnx.AttributeProto], Any]] = {
    "value_float": lambda attribute: attribute.f,
    "value_floats": lambda attribute: list(attribute.floats),
}


def widen(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of `model` that computes in float64. float16 and bfloat16 stay: they are the model's own choice."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for graph in _graphs(wide.graph):
        for tensor in graph.initializer:
            _widen_tensor(tensor)
        for value in (*graph.input, *graph.output):
            if value.type.tensor_type.elem_type == TensorProto.FLOAT:
                value.type.tensor_type.elem_type = TensorProto.DOUBLE
        graph.ClearField("value_info")
        for node in graph.node:
            _widen_node(node)
    return wide


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _widen_node(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            _widen_tensor(attribute.t)
        elif attribute.name in _TYPE_ATTRIBUTES and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.DOUBLE
        elif node.op_type == "Constant" and attribute.name in _PLAIN_FLOATS:
            values = np.asarray(_PLAIN_FLOATS[attribute.name](attribute), np.float64)
            attribute.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(values)))


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
