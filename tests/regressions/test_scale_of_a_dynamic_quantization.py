"""A scale of DynamicQuantizeLinear, a range divided by 255, was the range times 1 / 255: -1.5 of -2 to 1 became 43, a
half rounded to the other side."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.frontends.against_onnxruntime import check


def test_halves_are_rounded_to_even_numbers() -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [5])
    graph = helper.make_graph([node], "quantize", [x], [onnx.ValueInfoProto(name=name) for name in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    check(model, {"x": np.array([-1.5, 1, -0.5, 0, -2], np.float32)}, tolerance=0)
