"""What only the run knows and what ends ONNX Runtime's process: a frame without elements."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import fusion
from fusion.errors import ExecutionError
from tests.fuzz.engines import run_onnxruntime

MODEL = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["": 23]>
    graph (float[1,11,1] x, int64 step, int64 length) => (y) { y = STFT(x, step, "", length) }
    """
)

_SLOW = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["": 18]>
    graph (double[1,4096,1] x, int64 step, int64 length) => (double[N,A,B,C] y)
    { a = Tanh(x) b = Tanh(a) y = STFT(b, step, "", length) }
    """
)
_FOREIGN = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]>
    graph (float[4,4] x, int64 step, int64 length) => (float[4,4] y) {
        shape = Constant<value = int64[3] {1, 16, 1}> ()
        inverse = com.microsoft.Inverse(x)
        flat = Reshape(inverse, shape)
        frames = STFT(flat, step, "", length)
        sum = ReduceSum<keepdims=0>(frames)
        z = Add(x, sum)
        y = com.microsoft.Inverse(z)
    }
    """
)


@pytest.mark.parametrize("model", [_SLOW, _FOREIGN], ids=["whole", "between"])
def test_the_length_is_checked_where_onnx_runtime_runs_the_neighbours_too(model: onnx.ModelProto) -> None:
    compiled = fusion.compile(model)
    x = np.random.default_rng(0).normal(size=compiled.inputs[0].shape).astype(compiled.inputs[0].dtype)
    feeds = {"x": x, "step": np.array(2), "length": np.array(4)}
    np.testing.assert_allclose(compiled.run(feeds)["y"], run_onnxruntime(model, feeds).values["y"], atol=1e-4)
    with pytest.raises(ExecutionError, match="frame has no element"):
        compiled.run({**feeds, "length": np.array(0)})


def test_the_length_is_checked_before_onnx_runtime_reads_it() -> None:
    x = np.arange(11, dtype=np.float32).reshape(1, 11, 1)
    compiled = fusion.compile(MODEL)
    feeds = {"x": x, "step": np.array(2), "length": np.array(4)}
    np.testing.assert_allclose(compiled.run(feeds)["y"], run_onnxruntime(MODEL, feeds).values["y"], atol=1e-4)
    with pytest.raises(ExecutionError, match="frame has no element"):
        compiled.run({**feeds, "length": np.array(0)})
