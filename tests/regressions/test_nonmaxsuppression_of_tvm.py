"""TVM's converter of NonMaxSuppression selects no box where the limit of boxes is an input; ONNX Runtime runs it."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

import fusion


def test_boxes_are_selected() -> None:
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "limit", "overlap", "least"], ["y"])
    kinds = {"boxes": (1, 2, 4), "scores": (1, 1, 2), "overlap": (1,), "least": (1,)}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in kinds.items()]
    inputs.append(helper.make_tensor_value_info("limit", TensorProto.INT64, (1,)))
    output = helper.make_tensor_value_info("y", TensorProto.INT64, (2, 3))
    graph = helper.make_graph([node], "boxes", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    values = {
        "boxes": np.array([[[0, 0, 1, 1], [0, 5, 1, 6]]], "float32"),
        "scores": np.array([[[0.5, 0.9]]], "float32"),
        "overlap": np.array([0.5], "float32"),
        "least": np.array([0.0], "float32"),
        "limit": np.array([3]),
    }
    np.testing.assert_array_equal(fusion.compile(model, threads=1).run(values)["y"], [[0, 0, 1], [0, 0, 0]])
