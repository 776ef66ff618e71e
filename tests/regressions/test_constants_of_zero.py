"""TVM takes a product with a constant 0 for 0, a 0 over a number too, and refuses to divide by what it took for 0: of
NaN and infinities they were 0, and the reciprocal of one ended the compilation."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import fusion

X = [1, -1, 0, -0.0, np.nan, np.inf, -np.inf, 3]
ZEROS = {"zero": 0.0, "negative zero": -0.0, "matrix of zero": [[0.0]]}


def _nodes() -> list[onnx.NodeProto]:
    nodes = [helper.make_node("Sub", ["x", "x"], ["itself"])]
    for name in ZEROS:
        product = f"x times {name}"
        nodes += [
            helper.make_node("Mul", ["x", name], [product]),
            helper.make_node("Mul", [name, "x"], [f"{name} times x"]),
            helper.make_node("Div", ["x", name], [f"x over {name}"]),
            helper.make_node("Div", [name, "x"], [f"{name} over x"]),
            helper.make_node("Reciprocal", [product], [f"one over {product}"]),
            helper.make_node("Div", ["x", product], [f"x over {product}"]),
        ]
    return nodes


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_zeros_multiply_and_divide_as_other_numbers_do(dtype: type) -> None:
    nodes, x = _nodes(), np.array(X, dtype)
    weights = [numpy_helper.from_array(np.array(zero, dtype), name) for name, zero in ZEROS.items()]
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in nodes]
    graph = helper.make_graph(nodes, "zeros", [given], outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = fusion.compile(model, threads=1, strict=True).run({"x": x})
    for (name, found), wanted in zip(results.items(), session.run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(found, wanted, err_msg=name)
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(wanted)[numbers], err_msg=name)
