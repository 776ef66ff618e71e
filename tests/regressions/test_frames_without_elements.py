"""What ends ONNX Runtime's process: a frame without elements, which only the run knows, and a OneHot without a depth,
when it loads the body that has one, or a model of which onnx's checker complains; more samples than it can count."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import fusion
from fusion.errors import ExecutionError, FusionError, ShapeError
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

_IN_A_LOOP = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["": 18]>
    graph (float[1,16,1] x, int64 rounds, int64 step, int64 length) => (float[N] y) {
        start = Constant<value = float[1] {0.0}> ()
        more = Constant<value = bool {1}> ()
        y = Loop (rounds, more, start) <body = body (int64 i, bool on, float[N] sum) => (bool again, float[M] next) {
            again = Identity (on)
            frames = STFT (x, step, "", length)
            next = ReduceSum <keepdims = 0> (frames)
        }>
    }
    """
)
_BESIDE_A_SEQUENCE = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["": 18]>
    graph (float[1,16,1] x, int64 step, float[W] window) => (seq(float[A,B,C,D]) y) {
        frames = STFT (x, step, window)
        y = SequenceConstruct (frames)
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


def test_the_length_is_checked_where_onnx_runtime_runs_all_by_itself() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 16, 1)
    compiled = fusion.compile(_IN_A_LOOP)
    feeds = {"x": x, "rounds": np.array(2), "step": np.array(2), "length": np.array(4)}
    np.testing.assert_allclose(compiled.run(feeds)["y"], run_onnxruntime(_IN_A_LOOP, feeds).values["y"], atol=1e-4)
    with pytest.raises(ExecutionError, match="frame_length of STFT"):
        compiled.run({**feeds, "length": np.array(0)})


def test_windows_without_elements_have_no_frames() -> None:
    compiled = fusion.compile(_BESIDE_A_SEQUENCE, wait=True)
    feeds = {"x": np.ones((1, 16, 1), np.float32), "step": np.array(2), "window": np.ones(4, np.float32)}
    assert compiled.run(feeds)["y"][0].shape == (1, 7, 3, 2)
    with pytest.raises(ShapeError, match="the window is"):
        compiled.run({**feeds, "window": np.ones(0, np.float32)})


_WITHOUT_A_DEPTH = onnx.parser.parse_model(
    """
    <ir_version: 8, opset_import: ["": 18]>
    graph (bool c, int64[2] i, float[2] v) => (float[N,M] y) <int64[0] none = {}, int64[1] two = {2}> {
        y = If (c) <
            then_branch = first () => (float[2,M] a) { a = OneHot (i, none, v) },
            else_branch = second () => (float[2,M] b) { b = OneHot (i, two, v) }
        >
    }
    """
)


def test_one_hot_in_a_body_without_a_depth() -> None:
    module = fusion.compile(_WITHOUT_A_DEPTH)
    i, v = np.array([0, 1]), np.array([3, 7], np.float32)
    np.testing.assert_array_equal(module.run({"c": np.array(False), "i": i, "v": v})["y"], [[7, 3], [3, 7]])
    with pytest.raises(ExecutionError):
        module.run({"c": np.array(True), "i": i, "v": v})


def test_one_hot_without_a_depth_in_a_model_without_a_type() -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["": 18]>
        graph (int64[2] i, float[2] v) => (float[2,0] y) <int64[0] none = {}> { y = OneHot (i, none, v) }
        """
    )
    model.graph.output[0].ClearField("type")
    with pytest.raises(FusionError):
        fusion.compile(model)


@pytest.mark.parametrize("ratio", [1 << 30, 1 << 62])
def test_samples_without_end(ratio: int) -> None:
    text = f"""
        <ir_version: 8, opset_import: ["": 16]>
        graph (float16[1,1,2,2] x, float16[1,4] boxes, int64[1] images) => (y)
        {{ y = RoiAlign <sampling_ratio = {ratio}, output_height = 4, output_width = 4> (x, boxes, images) }}
    """
    with pytest.raises(ShapeError, match="sampling_ratio"):
        fusion.compile(onnx.parser.parse_model(text))
