"""A model with a sequence, which ONNX Runtime runs whole, returned float8 as uint8."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

import fusion


def test_it_keeps_its_dtype() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x"], ["many"]),
        helper.make_node("Cast", ["x"], ["narrow"], to=TensorProto.FLOAT8E4M3FN),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    outputs: list[onnx.ValueInfoProto] = [
        helper.make_tensor_sequence_value_info("many", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("narrow", TensorProto.FLOAT8E4M3FN, None),
    ]
    graph = helper.make_graph(nodes, "sequence", [x], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    made = fusion.compile(model, threads=1).run({"x": np.array([1, 2, 3.1], np.float32)})["narrow"]
    assert made.dtype == ml_dtypes.float8_e4m3fn
    np.testing.assert_array_equal(made.astype(np.float32), [1, 2, 3])
