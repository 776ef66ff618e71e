"""A scale of DynamicQuantizeLinear, a range divided by 255, was the range times 1 / 255: -1.5 of -2 to 1 became 43, a
half rounded to the other side. That of denormals is 0, by which ONNX Runtime divides."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontends.against_onnxruntime import check


def _model(size: int) -> onnx.ModelProto:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [size])
    graph = helper.make_graph([node], "quantize", [x], [onnx.ValueInfoProto(name=name) for name in node.output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_halves_are_rounded_to_even_numbers() -> None:
    check(_model(5), {"x": np.array([-1.5, 1, -0.5, 0, -2], np.float32)}, tolerance=0)


@pytest.mark.parametrize("largest", [1e-45, 1e-43, 3e-43, 1e-40])
def test_denormals(largest: float) -> None:
    for signs in ((1, 0, 1), (-1, 0, -1), (1, 0, -1)):
        check(_model(3), {"x": np.array(signs, np.float32) * np.float32(largest)}, tolerance=0)
