"""Depthwise convolutions of any length, padded, along the last axis of N x C x L: one form for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusion

CHANNELS = 3
LENGTHS = (7, 1, 2, 64, 1001)
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "padded": {"group": CHANNELS, "pads": [1, 1]},
    "causal": {"group": CHANNELS, "pads": [2, 0]},
    "strided": {"group": CHANNELS, "pads": [1, 1], "strides": [2]},
    "dilated": {"group": CHANNELS, "pads": [4, 4], "dilations": [4]},
}


def model(attributes: dict[str, Any]) -> onnx.ModelProto:
    """Return a model of one such convolution and a function behind it."""
    weight = np.random.default_rng(0).standard_normal((CHANNELS, 1, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], **attributes),
        helper.make_node("Sigmoid", ["c"], ["y"]),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", CHANNELS, length])
        for name, length in (("x", "length"), ("y", "out"))
    )
    graph = helper.make_graph(nodes, "lines", [x], [y], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("case", ATTRIBUTES)
def test_one_form_is_for_all_lengths(case: str) -> None:
    proto = model(ATTRIBUTES[case])
    module = fusion.compile(proto, wait=True, threads=1)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for length in LENGTHS:
        x = np.random.default_rng(length).standard_normal((2, CHANNELS, length)).astype(np.float32)
        np.testing.assert_allclose(module(x)[0], session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)
    (form,) = module.specializations
    assert form.inputs == module.inputs, module.explain()
