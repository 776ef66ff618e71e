"""ONNX Runtime ended the process where only a run knew that a recurrence, InstanceNormalization or a Scan along another
axis than the first had nothing to read, or that the window of a pool had no place in its image."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import helper

import fusion
from fusion.errors import FusionError
from tests.fuzz.engines import run_onnxruntime
from tests.module.small_models import FLOAT, model

pytestmark = pytest.mark.unoptimised


@pytest.mark.stand_in
@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_a_window_without_a_place_while_its_form_is_compiled(op: str) -> None:
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=[3, 2], strides=[2, 2])
    pool = model([node], [("x", FLOAT, [1, 16, "h", "w"])], [("y", FLOAT, None)])
    module = fusion.compile(pool)
    assert module(np.ones((1, 16, 1, 1), np.float32))[0].shape == (1, 16, 0, 1)
    x = np.random.default_rng(0).normal(size=(1, 16, 9, 8)).astype(np.float32)
    np.testing.assert_allclose(module(x)[0], run_onnxruntime(pool, {"x": x}).values["y"], rtol=1e-5, atol=1e-6)


_SCAN = """Y = Scan <num_scan_inputs = 1, scan_input_axes = [{axis}], body = b (row) => (one) {{
    one = Relu (row)
}}> (part)"""
_RESULTS = {
    "lstm": ((3, 2, 4), 1, "Y = LSTM <hidden_size = 4> (part, w, r)"),
    "gru": ((3, 2, 4), 0, "Y = GRU <hidden_size = 4> (part, v, s)"),
    "scan": ((2, 3, 4), 2, _SCAN.format(axis=1)),
    "scan along the last axis": ((2, 3, 4), 2, _SCAN.format(axis=-1)),
    "norm": ((2, 16, 4, 4), 3, "Y = InstanceNormalization (part, ones, ones)"),
    "pool": ((1, 16, 4, 4), 2, "Y = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (part)"),
}
"""The shape of an input, the axis of which a part is read, and what reads it."""


@pytest.mark.parametrize("name", _RESULTS)
def test_a_part_without_elements(name: str) -> None:
    shape, axis, node = _RESULTS[name]
    loop = onnx.parser.parse_model(
        f"""
        <ir_version: 8, opset_import: ["": 18]>
        graph (float[{",".join(map(str, shape))}] x, int64[1] end, int64 rounds, float[1,16,4] w, float[1,16,4] r,
            float[1,12,4] v, float[1,12,4] s, float[16] ones) => (float y)
            <int64[1] none = {{0}}, int64[1] axis = {{{axis}}}>
        {{
            start = Constant <value = float {{0.0}}> ()
            more = Constant <value = bool {{1}}> ()
            y = Loop (rounds, more, start) <body = body (int64 i, bool on, float sum) => (bool again, float next) {{
                again = Identity (on)
                part = Slice (x, none, end, axis)
                {node}
                next = ReduceSum <keepdims = 0> (Y)
            }}>
        }}
        """
    )
    rng = np.random.default_rng(0)
    module = fusion.compile(loop)
    feeds = {spec.name: rng.normal(size=spec.shape).astype(np.float32) for spec in module.inputs if spec.name != "end"}
    feeds |= {"end": np.array([shape[axis]]), "rounds": np.array(1)}
    np.testing.assert_allclose(module.run(feeds)["y"], run_onnxruntime(loop, feeds).values["y"], rtol=1e-5)
    if name == "pool":
        assert module.run({**feeds, "end": np.array([1])})["y"] == 0
    else:
        with pytest.raises(FusionError, match="must have elements to read"):
            module.run({**feeds, "end": np.array([0])})


@pytest.mark.stand_in
@pytest.mark.parametrize("wait", [True, False])
def test_a_scan_of_nothing_along_an_axis(wait: bool) -> None:
    """A batch of none has a result; lines of none, and rows without elements, an error."""
    scan = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["": 18]> graph (float[1] start, float[b,t,d] x) => (float[1] y)
        { y = Scan <num_scan_inputs = 1, scan_input_axes = [1], body = b (sum, row) => (next) {
            some = ReduceSum <keepdims = 0> (row)
            next = Add (sum, some) }> (start, x) }
        """
    )
    module = fusion.compile(scan, wait=wait)
    start = np.full(1, 2, np.float32)
    assert module(start, np.ones((0, 3, 5), np.float32))[0] == 2
    for shape in ((2, 0, 5), (2, 3, 0)):
        with pytest.raises(FusionError, match="Scan"):
            module(start, np.ones(shape, np.float32))


def test_a_scan_with_more_axes_than_inputs_is_refused() -> None:
    """It was an internal error."""
    scan = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["": 18]> graph (float[2,3,4] x) => (float[3,2,4] y)
        { y = Scan <num_scan_inputs = 1, scan_input_axes = [1, 1], body = b (row) => (one) { one = Relu (row) }> (x) }
        """
    )
    with pytest.raises(FusionError, match="Number of scan input axes"):
        fusion.compile(scan)
