"""What ONNX Runtime computes of constants, and onnx's reference implementation, which folds them, does not: the older
Softmax over several axes was one over the first of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.frontends.against_onnxruntime import check

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(1, 3, 4, 1)
LARGE = np.array([2**62, 2**62, 2**62 - 4])
KINDS = ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
Node = tuple[str, list[Any], dict[str, Any]]

NODES: dict[int, list[Node]] = {
    12: [
        ("Softmax", [X], {}),
        ("LogSoftmax", [X], {"axis": 2}),
        ("Unsqueeze", [X], {"axes": [3, 0]}),
        ("Unsqueeze", [X], {"axes": [-1, 0]}),
        ("Squeeze", [X], {"axes": [3, 0]}),
        ("ReduceMean", [LARGE], {}),
        *[(f"Reduce{kind}", [np.zeros((2, 0), dtype)], {}) for kind in KINDS for dtype in (np.int32, np.float32)],
        ("ReduceL2", [LARGE.astype(np.int32) + 2**30], {}),
    ],
    21: [
        ("Squeeze", [X, np.zeros(0, np.int64)], {}),
        ("Slice", [X, np.array([-9, -9]), np.array([-99, -99]), np.array([1, 2]), np.array([-1, -3])], {}),
        ("NonZero", [np.float32(3)], {}),
        ("Unique", [np.array([3, 1, 3, 2])], {"sorted": 0}),
        ("Shrink", [np.array([2**25 + 1, -(2**31) + 1, 3], np.int32)], {"bias": 0.25}),
        ("Shrink", [np.array([1 + 1e-12, -3.1])], {}),
        ("LogSoftmax", [np.array([[0, -300, 2]], np.float32)], {}),
        ("ReduceL2", [np.array([300, 400, 500], np.float16)], {}),
        ("QuantizeLinear", [np.array([np.inf, 1, 3e38, -np.inf], np.float32), np.float32(0.1), np.uint8(7)], {}),
    ],
}


@pytest.mark.parametrize("opset", NODES)
@pytest.mark.parametrize("known", [True, False], ids=["known", "inputs"])
def test_it_is_as_in_a_run(opset: int, known: bool) -> None:
    """Of constants, and of inputs but for what says which elements are meant."""
    nodes, constants, inputs = [], [], {}
    for number, (op, operands, attributes) in enumerate(NODES[opset]):
        names = [f"x{number}_{place}" for place in range(len(operands))]
        nodes.append(helper.make_node(op, names, [f"y{number}"], **attributes))
        for place, (name, operand) in enumerate(zip(names, operands, strict=True)):
            if known or place:
                constants.append(numpy_helper.from_array(np.asarray(operand), name))
            else:
                inputs[name] = np.asarray(operand)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
    ]
    outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in nodes]
    graph = helper.make_graph(nodes, "constants", infos, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    check(model, inputs, fallbacks=None)
