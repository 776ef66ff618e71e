"""Reductions whose axes only the run knows were computed by ONNX's function bodies, which square integers in their own
type, take the root of float64 in float32, and overflow in ReduceLogSumExp."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.frontends.against_onnxruntime import check

OPERANDS = {
    "ReduceL2": [
        np.array([2**40, 2**40]),
        np.array([2**20, 2**20], np.int32),
        np.array([1e30, 1e30]),
        np.array([1 / 3]),
    ],
    "ReduceLogSumExp": [np.array([800, 900], np.float32)],
}


def test_numbers() -> None:
    nodes, inputs = [], {"axes": np.array([0])}
    for op, operands in OPERANDS.items():
        for operand in operands:
            name = f"x{len(nodes)}"
            inputs[name] = operand
            nodes.append(helper.make_node(op, [name, "axes"], [f"y{len(nodes)}"]))
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
    ]
    outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in nodes]
    graph = helper.make_graph(nodes, "reductions", infos, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    check(model, inputs, fallbacks=None, tolerance=1e-7)
