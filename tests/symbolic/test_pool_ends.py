"""Pools whose last windows reach beyond pictures at some sizes only have one form, which is right at all."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

import fusion


@pytest.mark.parametrize(
    ("kernel", "stride", "pads", "ceil_mode"),
    [
        (3, 2, [0, 0, 0, 0], 1),
        (2, 2, [0, 0, 0, 0], 1),
        (3, 3, [0, 0, 0, 0], 1),
        (3, 2, [0, 0, 1, 1], 0),
    ],
)
def test_a_pool_of_any_picture(kernel: int, stride: int, pads: list[int], ceil_mode: int) -> None:
    nodes = [
        make_node("Conv", ["x", "weight"], ["seen"], pads=[1, 1, 1, 1]),
        make_node("MaxPool", ["seen"], ["y"], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads,
                  ceil_mode=ceil_mode),
    ]  # fmt: skip
    weight = np.random.default_rng(0).standard_normal((16, 3, 3, 3)).astype(np.float32)
    inputs = [make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"])]
    outputs = [make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)]
    graph = make_graph(nodes, "pool", inputs, outputs, [numpy_helper.from_array(weight, "weight")])
    model = make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    module = fusion.compile(model, wait=True, cache=False, threads=1)
    for height, width in ((66, 69), (9, 10), (17, 24), (35, 33)):
        x = np.random.default_rng(width).standard_normal((1, 3, height, width)).astype(np.float32)
        np.testing.assert_allclose(module.run({"x": x})["y"], session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()
