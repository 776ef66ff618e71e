"""Small ONNX models for the tests of what happens after compilation, and a NumPy version of each."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL, BFLOAT16 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.BFLOAT16
Value = tuple[str, int, list[int | str]]


def model(
    nodes: list[onnx.NodeProto], inputs: list[Value], outputs: list[Value], weights: dict[str, np.ndarray] | None = None
) -> onnx.ModelProto:
    """Return an ONNX model of operator set 17."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def weights(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the two matrices of `mlp`, 8x32 and 32x4."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((8, 32)).astype(np.float32), rng.standard_normal((32, 4)).astype(np.float32)


def mlp(batch: int | str = 3) -> onnx.ModelProto:
    """Return x[batch, 8] -> relu(x @ first) @ second = y[batch, 4]."""
    first, second = weights()
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["h"]),
        helper.make_node("Relu", ["h"], ["a"]),
        helper.make_node("MatMul", ["a", "second"], ["y"]),
    ]
    values = {"first": first, "second": second}
    return model(nodes, [("x", FLOAT, [batch, 8])], [("y", FLOAT, [batch, 4])], values)


def two_layers() -> onnx.ModelProto:
    """Return `mlp` with what is between its layers as a second result, relu(x @ first) = a[3, 32]: two kernels."""
    proto = mlp()
    proto.graph.output.append(helper.make_tensor_value_info("a", FLOAT, [3, 32]))
    return proto


def softmax_of_columns() -> onnx.ModelProto:
    """Return `mlp` with a softmax over the batch for its relu: three kernels, with two buffers between."""
    proto = mlp()
    proto.graph.node[1].CopyFrom(helper.make_node("Softmax", ["h"], ["a"], axis=0))
    return proto


def mlp_numpy(x: np.ndarray) -> np.ndarray:
    """Return what `mlp` computes."""
    first, second = weights()
    return np.maximum(x @ first, 0) @ second


def two_inputs() -> onnx.ModelProto:
    """Return a[2, 3] + b[2, 3] = sum and a[2, 3] * b[2, 3] = product."""
    nodes = [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Mul", ["a", "b"], ["product"])]
    shape: list[int | str] = [2, 3]
    return model(nodes, [("a", FLOAT, shape), ("b", FLOAT, shape)], [("sum", FLOAT, shape), ("product", FLOAT, shape)])
