"""Kernels that need all sizes before the run are cut into parts that do not, and `explain()` says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

import fusion

RNG = np.random.default_rng(18)
WIDTH = 24
ROWS = {"before": 4, "x": 56, "behind": 4}
Shape = tuple[int, ...]


def model(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int | str], rank: int, held: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    """Return the model of `nodes`, which make "y" of "x"."""
    graph = make_graph(
        nodes,
        "cut",
        [make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)],
        [numpy_helper.from_array(value, name) for name, value in held.items()],
    )
    return make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8)


def detections() -> onnx.ModelProto:
    """Return the boxes of a detection head: rows of four channels of all pixels, the channels the slowest."""
    nodes = [
        make_node("Conv", ["x", "kernel"], ["made"]),
        make_node("Sigmoid", ["made"], ["scores"]),
        make_node("Reshape", ["scores", "boxes"], ["y"]),
    ]
    held = {"kernel": _normal(WIDTH, 16, 1, 1), "boxes": np.array([0, -1, 4])}
    return model(nodes, ["batch", 16, "height", "width"], 3, held)


def heads() -> onnx.ModelProto:
    """Return what torch's attention, whose batch is the second axis, makes of one product for all its operands."""
    nodes = [
        make_node("Transpose", ["x"], ["by_place"], perm=[1, 0, 2]),
        make_node("MatMul", ["by_place", "weight"], ["made"]),
        make_node("Add", ["made", "bias"], ["moved"]),
        make_node("Reshape", ["moved", "apart"], ["three"]),
        make_node("Transpose", ["three"], ["y"], perm=[2, 0, 1, 3]),
    ]
    held = {"weight": _normal(16, 3 * WIDTH), "bias": _normal(3 * WIDTH), "apart": np.array([17, -1, 3, WIDTH])}
    return model(nodes, ["batch", 17, 16], 4, held)


@pytest.mark.parametrize(
    ("made", "shapes", "cut"),
    [
        (detections, [(2, 16, 8, 12), (1, 16, 1, 4), (3, 16, 5, 8), (1, 16, 2, 2)], []),
        (heads, [(2, 17, 16), (1, 17, 16), (5, 17, 16), (0, 17, 16)], ["reshape -> transpose"]),
    ],
    ids=["detections", "heads"],
)
def test_what_a_kernel_cannot_store_at_any_size_is_one_of_its_own(
    made: Callable[[], onnx.ModelProto], shapes: Sequence[Shape], cut: Sequence[str]
) -> None:
    """The rows of boxes, of which a kernel is told a multiple, it can."""
    network = made()
    module = fusion.compile(network, wait=True, cache=False, threads=2)
    session = onnxruntime.InferenceSession(network.SerializeToString(), providers=["CPUExecutionProvider"])
    for shape in shapes:
        x = _normal(*shape)
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_allclose(module(x)[0], wanted, rtol=1e-5, atol=1e-5)
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()
    lines = [line for line in module.explain().splitlines() if "their kernel needs all sizes before the run: " in line]
    assert len(lines) == len(cut), lines
    assert all(edge in line for edge, line in zip(cut, lines, strict=True)), lines


def test_concatenations_that_are_worth_it_at_larger_sizes_only() -> None:
    """Of three images one kernel writes its rows between others in place, of two it does not; the second concatenation
    is in place at both."""
    values = [make_tensor_value_info(name, TensorProto.FLOAT, ["batch", rows, 64]) for name, rows in ROWS.items()]
    nodes = [
        make_node("Relu", ["x"], ["kept"]),
        make_node("Concat", ["before", "kept", "behind"], ["rows"], axis=1),
        make_node("MatMul", ["x", "weight"], ["left"]),
        make_node("Softmax", ["x"], ["right"], axis=-1),
        make_node("Concat", ["left", "right"], ["columns"], axis=2),
    ]
    made = [make_tensor_value_info(name, TensorProto.FLOAT, [None] * 3) for name in ("rows", "columns")]
    graph = make_graph(nodes, "joined", values, made, [numpy_helper.from_array(_normal(64, 64), "weight")])
    network = make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8)
    module = fusion.compile(network, wait=True, cache=False, threads=2)
    session = onnxruntime.InferenceSession(network.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch in (2, 1, 5):
        given = {name: _normal(batch, rows, 64) for name, rows in ROWS.items()}
        for found, wanted in zip(module.run(given).values(), session.run(None, given), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()


def _normal(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / 3).astype(np.float32)
