"""Whether a model that was written is one by the rules of ONNX."""

from __future__ import annotations

from math import prod

import onnx
from onnx import ModelProto, TensorProto, helper

_SIZES = 1024
"""Elements of a constant up to which it may say what shape a result has; larger ones are not copied for the check."""


def why_refused(model: ModelProto) -> str:
    """Return what in a model ONNX does not allow: names that are given twice, or types that an operator does not take;
    "" where it is right."""
    try:
        onnx.checker.check_model(_without_weights(model), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        return lines[0] if lines else type(error).__name__
    return ""


def _without_weights(model: ModelProto) -> ModelProto:
    """Return a model of the same nodes whose large weights are inputs."""
    graph, small, large = model.graph, list[TensorProto](), list[TensorProto]()
    for weight in graph.initializer:
        (small if prod(weight.dims) <= _SIZES else large).append(weight)
    described = [helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims) for weight in large]
    inner = helper.make_graph(graph.node, graph.name, [*graph.input, *described], graph.output, small)
    return helper.make_model(inner, opset_imports=model.opset_import, ir_version=model.ir_version)
