"""Small ONNX models that the tests of the frontends share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper


def make(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int | str | None]],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = 20,
    **domains: int,
) -> onnx.ModelProto:
    """Return a float32 model of `nodes`; a weight that is an array becomes an initializer."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(d.replace("_", "."), v) for d, v in domains.items()),
    ]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: object) -> NodeProto:
    """Return a node named after its first output."""
    return helper.make_node(op, list(inputs), list(outputs), name=f"{outputs[0]}_node", **attributes)


def branch(
    nodes: Sequence[NodeProto], outputs: Sequence[str], weights: Mapping[str, np.ndarray] | None = None
) -> onnx.GraphProto:
    """Return a subgraph that reads the values around it by name."""
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    return helper.make_graph(list(nodes), outputs[0], [], results, tensors)


def choose(condition: str, outputs: Sequence[str], then: onnx.GraphProto, other: onnx.GraphProto) -> NodeProto:
    """Return an If."""
    return helper.make_node("If", [condition], list(outputs), then_branch=then, else_branch=other)


def mlp() -> onnx.ModelProto:
    """x [4, 8] -> relu(x @ w)[4, 3]"""
    weight = np.random.default_rng(0).standard_normal((8, 3), dtype=np.float32)
    return make([node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["y"])], {"x": [4, 8]}, ["y"], {"w": weight})
