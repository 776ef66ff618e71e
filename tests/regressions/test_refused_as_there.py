"""Nodes that ONNX Runtime refuses and that ran: operands that do not broadcast yet, weights of pixels that are none, an
axis named twice by the run."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import fusion
from fusion.errors import ExecutionError, ShapeError
from tests.frontends.against_onnxruntime import check, onnxruntime_runs

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("operator", ["Max", "Mean", "Min", "Sum"])
def test_broadcasting_before_set_8(operator: str) -> None:
    text = f"graph (float[2,3] x, float[3] y) => (float[2,3] z) {{ z = {operator} (x, y) }}"
    old, new = (onnx.parser.parse_model(f'<ir_version: 4, opset_import: ["": {opset}]> {text}') for opset in (7, 8))
    inputs = {"x": X, "y": X[0]}
    with pytest.raises(Exception, match="same shape"):
        onnxruntime_runs(old, inputs)
    with pytest.raises(ShapeError, match="alike before operator set 8"):
        fusion.compile(old)
    if operator == "Sum":
        check(new, inputs)


def test_exclude_outside_of_a_nearest_resize() -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["": 18]>
        graph (float[1,1,2,3] x) => (float[1,1,4,6] y) <float[4] scales = {1, 1, 2, 2}>
        { y = Resize <exclude_outside = 1> (x, "", scales) }
        """
    )
    with pytest.raises(Exception, match="exclude_outside"):
        onnxruntime_runs(model, {"x": X[None, None]})
    with pytest.raises(ShapeError, match="exclude_outside"):
        fusion.compile(model)


def test_an_axis_twice() -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["": 18]>
        graph (float[1,1] x, int64[2] axes) => (float[1,1,1,1] y) { y = Unsqueeze (x, axes) }
        """
    )
    inputs = {"x": X[:1, :1], "axes": np.array([1, 0])}
    module = check(model, inputs, fallbacks=None)
    twice = {**inputs, "axes": np.array([1, 1])}
    with pytest.raises(Exception, match="duplicate"):
        onnxruntime_runs(model, twice)
    with pytest.raises(ExecutionError):
        module.run(twice)
