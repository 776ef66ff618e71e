"""Kernels read out of bounds where ONNX Runtime returned a smaller tensor than the model declares. It now tells the
shape of what onnx does not know, and the declaration counts for nothing."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fusion

_DOMAIN = "com.microsoft"


def _model(rows: int, *, twice: bool) -> onnx.ModelProto:
    """Return y = -inverse(x) of x[1, 3, 3], whose inverse is declared to have `rows` of them; z = -inverse(inverse)."""
    nodes = [helper.make_node("Inverse", ["x"], ["u"], domain=_DOMAIN), helper.make_node("Neg", ["u"], ["y"])]
    outputs = {"y": "u", "z": "v"} if twice else {"y": "u"}
    if twice:
        nodes += [helper.make_node("Inverse", ["u"], ["v"], domain=_DOMAIN), helper.make_node("Neg", ["v"], ["z"])]
    graph = helper.make_graph(
        nodes,
        "inverse",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 3, 3]) for name in outputs],
        value_info=[helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 3, 3]) for name in outputs.values()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("twice", [False, True])
def test_results(rows: int, twice: bool) -> None:
    x = np.eye(3, dtype=np.float32)[None] * 2
    module = fusion.compile(_model(rows, twice=twice), threads=1)
    assert {node.op for node in module.specializations[0].fallbacks} == {"Inverse"}
    results = module.run({"x": x})
    np.testing.assert_array_equal(results["y"], -np.linalg.inv(x))
    if twice:
        np.testing.assert_array_equal(results["z"], -x)
