"""The float64 reference agrees with ONNX Runtime to float32's precision, operator by operator."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench import gate
from bench.reference import evaluate, widen, windows

PRECISION = 1e-5
CONV = [
    {},
    {"strides": [2, 1], "pads": [1, 0, 2, 1]},
    {"dilations": [2, 2], "pads": [2, 2, 2, 2]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    {"auto_pad": "VALID"},
]
TRANSPOSE = [
    {},
    {"strides": [2, 3], "pads": [1, 0, 2, 1]},
    {"strides": [2, 2], "output_padding": [1, 1]},
    {"strides": [2, 2], "output_shape": [16, 18]},
    {"dilations": [2, 1]},
]
POOL = [
    {"kernel_shape": [2, 3], "strides": [2, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER"},
]


def check(
    path: Path, kind: str, shape: tuple[int, ...], weights: list[np.ndarray], opset: int = 17, **options: Any
) -> None:
    """Compare one operator, with random input of `shape`, in the reference and in ONNX Runtime."""
    names = [f"w{index}" for index in range(len(weights))]
    node = helper.make_node(kind, ["x", *names], ["y"], **options)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(value, name) for name, value in zip(names, weights, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, path)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    actual = evaluate(path, {"x": x})["y"]
    assert actual.dtype == np.float64
    assert gate.error_of(expected, actual) < PRECISION


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("options", CONV, ids=str)
def test_conv(tmp_path: Path, options: dict[str, Any], group: int) -> None:
    check(tmp_path / "m.onnx", "Conv", (2, 4, 9, 11), [random(8, 4 // group, 3, 2), random(8)], group=group, **options)


@pytest.mark.parametrize("rows", [1, 2])
def test_conv_in_blocks_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(windows, "_BLOCK_BYTES", rows * 10 * 4 * 3 * 2 * 8)
    check(tmp_path / "m.onnx", "Conv", (2, 4, 9, 11), [random(8, 2, 3, 2), random(8)], group=2)


def test_conv_1d(tmp_path: Path) -> None:
    check(tmp_path / "m.onnx", "Conv", (1, 3, 20), [random(5, 3, 4)], strides=[2], pads=[1, 2])


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("options", TRANSPOSE, ids=str)
def test_conv_transpose(tmp_path: Path, options: dict[str, Any], group: int) -> None:
    weights = [random(4, 3, 3, 3), random(3 * group)]
    check(tmp_path / "m.onnx", "ConvTranspose", (2, 4, 8, 9), weights, group=group, **options)


@pytest.mark.parametrize("options", POOL, ids=str)
def test_max_pool(tmp_path: Path, options: dict[str, Any]) -> None:
    check(tmp_path / "m.onnx", "MaxPool", (1, 3, 10, 12), [], **options)


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("options", POOL, ids=str)
def test_average_pool(tmp_path: Path, options: dict[str, Any], count: int) -> None:
    check(tmp_path / "m.onnx", "AveragePool", (1, 3, 10, 12), [], opset=19, count_include_pad=count, **options)


@pytest.mark.parametrize("opset", [9, 13, 17])
def test_batch_normalization(tmp_path: Path, opset: int) -> None:
    weights = [random(3), random(3), random(3), np.abs(random(3)) + 0.5]
    check(tmp_path / "m.onnx", "BatchNormalization", (2, 3, 4, 5), weights, opset=opset)


@pytest.mark.parametrize(("opset", "options"), [(9, {}), (11, {"axis": 2}), (13, {}), (13, {"axis": 1})])
def test_softmax_of_each_version(tmp_path: Path, opset: int, options: dict[str, Any]) -> None:
    check(tmp_path / "m.onnx", "Softmax", (2, 3, 4, 5), [], opset=opset, **options)


def test_widen_leaves_the_input_untouched_and_half_precision_alone() -> None:
    half = helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16)
    back = helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)) for name in ("x", "y")]
    model = helper.make_model(helper.make_graph([half, back], "g", info[:1], info[1:]))
    before = model.SerializeToString()
    nodes = widen(model).graph.node
    assert [node.attribute[0].i for node in nodes] == [TensorProto.FLOAT16, TensorProto.DOUBLE]
    assert model.SerializeToString() == before


def test_memory_holds_two_values_and_a_block_of_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "_BLOCK_BYTES", 1 << 20)
    shape = (1, 16, 96, 96)
    nodes = [helper.make_node("Conv", [f"v{i}", "w"], [f"v{i + 1}"], pads=[1, 1, 1, 1]) for i in range(10)]
    path = save(tmp_path, nodes, {"v0": shape}, ["v10"], {"w": random(16, 16, 3, 3)})
    x = random(*shape)
    tracemalloc.start()
    try:
        evaluate(path, {"v0": x})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The input, what it was read from, its padded copy and the output; all windows of one convolution are 9 values.
    assert peak < 6 * 2 * x.nbytes


def test_values_live_until_the_last_branch_or_the_caller_has_read_them(tmp_path: Path) -> None:
    result = [helper.make_empty_tensor_value_info("b")]
    branches = {
        name: helper.make_graph([helper.make_node(kind, ["h", "x"], ["b"])], name, [], result)
        for name, kind in (("then_branch", "Add"), ("else_branch", "Sub"))
    }
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("Neg", ["h"], ["early"]),
        helper.make_node("Dropout", ["early"], ["dropped", "unread"]),
        helper.make_node("If", ["c"], ["y"], **branches),
    ]
    path = save(tmp_path, nodes, {"x": (4,)}, ["early", "dropped", "y"], {"c": np.array(True)})
    x = random(4)
    results = evaluate(path, {"x": x})
    assert list(results) == ["early", "dropped", "y"]
    np.testing.assert_array_equal(results["dropped"], results["early"])
    np.testing.assert_allclose(results["y"], np.maximum(x, 0) + x.astype(np.float64))


def test_an_output_left_out_is_not_read_as_an_input_left_out(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["", "state"], hidden_size=2),
        helper.make_node("LSTM", ["x", "w", "r", "", "", "state"], ["y"], hidden_size=2),
    ]
    path = save(tmp_path, nodes, {"x": (4, 1, 3)}, ["y"], {"w": random(1, 8, 3), "r": random(1, 8, 2)})
    x = random(4, 1, 3)
    (expected,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    assert gate.error_of(expected, evaluate(path, {"x": x})["y"]) < PRECISION


def save(
    folder: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, ...]],
    outputs: list[str],
    weights: dict[str, np.ndarray],
) -> Path:
    """Write a model with inputs in float32 and return its path."""
    graph = helper.make_graph(
        nodes,
        "several",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    path = folder / "several.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_are_gathered_along_any_axis(tmp_path: Path, axis: int) -> None:
    """Indices may count from the end, and be of fewer places than the tensor on other axes."""
    shape = (3, 4, 5)
    places = np.random.default_rng(2).integers(-shape[axis], shape[axis], (2, 3, 2)).astype(np.int64)
    check(tmp_path / "m.onnx", "GatherElements", shape, [places], axis=axis)


def test_whole_numbers_are_those_of_float32(tmp_path: Path) -> None:
    """The bucket of a distance of 16 is log(2) / log(16) * 8, which is 2 in float32 and less in float64 with the same
    constants."""
    names = {"log": np.float32(np.log(16)), "scale": np.float32(8)}
    nodes = [
        helper.make_node("Log", ["x"], ["l"]),
        helper.make_node("Div", ["l", "log"], ["d"]),
        helper.make_node("Mul", ["d", "scale"], ["m"]),
        helper.make_node("Cast", ["m"], ["y"], to=TensorProto.INT64),
    ]
    graph = helper.make_graph(
        nodes,
        "bucket",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [1])],
        [numpy_helper.from_array(value, name) for name, value in names.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    assert evaluate(tmp_path / "m.onnx", {"x": np.array([2], np.float32)})["y"] == 2


_BYTES = """
<ir_version: 8, opset_import: ["": 17]>
bytes (float[3, 4] x) => (float[3, 2] y)
<int8[4, 2] w = {127, -128, 127, -128, 127, 5, 100, 6}, int8[2] none = {0, 3}, float[2] scales = {0.5, 0.25}> {
  q, s, z = DynamicQuantizeLinear(x)
  p = MatMulInteger(q, w, z)
  f = Cast<to=1>(p)
  a = Mul(f, s)
  d = DequantizeLinear<axis=1>(w, scales, none)
  b = MatMul(x, d)
  y = Add(a, b)
}
"""


def test_bytes_before_opset_19(tmp_path: Path) -> None:
    """Pairs of products of 255 and 127, which saturate in ONNX Runtime on CPUs without VNNI, are summed exactly."""
    model = onnx.parser.parse_model(_BYTES)
    onnx.save(model, tmp_path / "m.onnx")
    x = np.array([[0, 255, 255, 128], [255, 255, 255, 255], [3, 1, 0, 2]], np.float32)  # a scale of 1
    w = numpy_helper.to_array(model.graph.initializer[0]).astype(np.float64)
    expected = x @ w + x @ ((w - [0, 3]) * [0.5, 0.25])
    np.testing.assert_array_equal(evaluate(tmp_path / "m.onnx", {"x": x})["y"], expected)
