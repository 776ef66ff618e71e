"""A model with a sequence, which ONNX Runtime runs whole, returned float8 as uint8, and neither took nor returned other
types that numpy lacks."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fusion

_TYPES = {
    TensorProto.BFLOAT16: ml_dtypes.bfloat16,
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.INT4: ml_dtypes.int4,
}


@pytest.mark.parametrize("element", _TYPES)
def test_it_keeps_its_dtype(element: int) -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x"], ["many"]),
        helper.make_node("Cast", ["x"], ["narrowed"], to=element),
        helper.make_node("Cast", ["narrow"], ["widened"], to=TensorProto.FLOAT),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
        helper.make_tensor_value_info("narrow", element, [3]),
    ]
    outputs: list[onnx.ValueInfoProto] = [
        helper.make_tensor_sequence_value_info("many", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("narrowed", element, [3]),
        helper.make_tensor_value_info("widened", TensorProto.FLOAT, [3]),
    ]
    graph = helper.make_graph(nodes, "sequence", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = np.array([1, -3, 0], np.float32)
    made = fusion.compile(model, threads=1).run({"x": x, "narrow": x.astype(_TYPES[element])})
    assert made["narrowed"].dtype == _TYPES[element]
    np.testing.assert_array_equal(made["narrowed"].astype(np.float32), x)
    np.testing.assert_array_equal(made["widened"], x)
