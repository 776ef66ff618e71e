"""Kernels that have plain loops at any sizes, known ones too, have them in the form for all sizes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

import fusion


@pytest.fixture(scope="module")
def sorted_rows() -> onnx.ModelProto:
    """Return the first of rows and of columns in order, running sums, and rows of which some elements are others."""
    nodes = [
        make_node("Relu", ["x"], ["kept"]),  # many zeros: of equal ones the first come first
        make_node("TopK", ["kept", "three"], ["best", "places"], axis=-1),
        make_node("TopK", ["kept", "two"], ["least", "rows"], axis=1, largest=0),
        make_node("CumSum", ["x", "axis"], ["sums"]),
        make_node("ScatterElements", ["x", "at", "new"], ["scattered"], axis=2),
        make_node("Neg", ["best"], ["negated"]),
    ]
    weights = {
        "three": np.array([3]), "two": np.array([2]), "axis": np.array(1), "at": np.array([[[1, 5]]]),
        "new": np.ones((1, 1, 2), np.float32),
    }  # fmt: skip
    outputs = {name: TensorProto.FLOAT for name in ("negated", "least", "sums", "scattered")}
    graph = make_graph(
        nodes,
        "sorted",
        [make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 8])],
        [
            make_tensor_value_info(name, kind, [None] * 3)
            for name, kind in {**outputs, "places": TensorProto.INT64, "rows": TensorProto.INT64}.items()
        ],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("threads", [1, 2])
def test_sorted_rows_are_those_of_onnx_runtime_at_sizes_the_passes_have_not_seen(
    sorted_rows: onnx.ModelProto, threads: int
) -> None:
    module = fusion.compile(sorted_rows, wait=True, cache=False, threads=threads)
    session = onnxruntime.InferenceSession(sorted_rows.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch, length in ((2, 5), (1, 2), (3, 17), (7, 2), (1, 300), (40, 33)):
        x = np.random.default_rng(length).standard_normal((batch, length, 8)).astype(np.float32)
        for found, wanted in zip(module.run({"x": x}).values(), session.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()
