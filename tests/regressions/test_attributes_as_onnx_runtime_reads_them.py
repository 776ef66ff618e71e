"""Attributes of which onnx's inference makes something else than ONNX Runtime, and nodes with thousands of inputs."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

import fusion
from fusion.errors import FusionError
from fusion.frontends.dispatch import import_model
from tests.frontends.against_onnxruntime import check
from tests.fuzz.engines import run_onnxruntime

pytestmark = pytest.mark.unoptimised

_REDUCED = """
    <ir_version: 10, opset_import: ["": 18]>
    graph (float[2,3] x) => (y, z) { y = ArgMax<axis = 1, keepdims = KEEP>(x) z = ReduceMax<keepdims = KEEP>(x, axes) }
"""
_FRAMES = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["": 18]>
    graph (float[1,16,1] x, float[1,1,3,2] limit) => (y)
    <int64 step = {2}, float[4] window = {1, 2, 2, 1}>
    { frames = STFT(x, step, window) y = Less(frames, limit) }
    """
)
_WINDOWS = """
    <ir_version: 10, opset_import: ["": 18]>
    graph (int64 n) => (hann, blackman)
    { hann = HannWindow<periodic = PERIODIC>(n) blackman = BlackmanWindow<periodic = PERIODIC>(n) }
"""
_GEMM = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["": 18]>
    graph (int32[1,2] a, int32[2,1] b, int32[1,1] c) => (int32[1,1] y) { y = Gemm<alpha = 0.5, beta = 1.5>(a, b, c) }
    """
)


@pytest.mark.parametrize("keepdims", [0, 1, 2, -100])
def test_only_1_keeps_reduced_axes(keepdims: int) -> None:
    text = _REDUCED.replace("(y, z)", "(y, z) <int64[1] axes = {1}>").replace("KEEP", str(keepdims))
    model = onnx.parser.parse_model(text)
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    expected = run_onnxruntime(model, feeds).values
    for name, value in fusion.compile(model).run(feeds).items():
        np.testing.assert_array_equal(value, expected[name])
        assert value.shape == ((2, 1) if keepdims == 1 else (2,))


@pytest.mark.parametrize("stash_type", [0, 7, 100])
def test_the_type_of_statistics_matters_to_none_but_them(stash_type: int) -> None:
    text = f"""
        <ir_version: 10, opset_import: ["": 18]>
        graph (double[2,4] x, double[4] scale) => (OUTPUTS)
        {{ OUTPUTS = LayerNormalization<stash_type = {stash_type}>(x, scale) }}
    """
    alone, with_mean = (onnx.parser.parse_model(text.replace("OUTPUTS", names)) for names in ("y", "y, mean"))
    feeds = {"x": np.arange(8.0).reshape(2, 4), "scale": np.arange(4.0)}
    expected = run_onnxruntime(alone, feeds).values
    np.testing.assert_allclose(fusion.compile(alone).run(feeds)["y"], expected["y"], rtol=1e-5)
    assert run_onnxruntime(with_mean, feeds).status != "ran"
    with pytest.raises(FusionError):
        fusion.compile(with_mean)


@pytest.mark.parametrize("largest", [0, 1, 7])
def test_only_1_asks_for_the_largest(largest: int) -> None:
    text = f"""
        <ir_version: 10, opset_import: ["": 18]>
        graph (float[2,3] x) => (values, places) <int64[1] k = {{2}}>
        {{ values, places = TopK<largest = {largest}>(x, k) }}
    """
    model, feeds = onnx.parser.parse_model(text), {"x": np.array([[3, 1, 2], [4, 6, 5]], np.float32)}
    expected = run_onnxruntime(model, feeds).values
    for name, value in fusion.compile(model).run(feeds).items():
        np.testing.assert_array_equal(value, expected[name])


def test_frames_have_one_side_by_default() -> None:
    feeds = {"x": np.arange(16, dtype=np.float32).reshape(1, 16, 1), "limit": np.zeros((1, 1, 3, 2), np.float32)}
    expected = run_onnxruntime(_FRAMES, feeds).values["y"]
    np.testing.assert_array_equal(fusion.compile(_FRAMES).run(feeds)["y"], expected)


@pytest.mark.parametrize("operator", ["Sum", "Mean", "Max"])
def test_nodes_of_thousands_of_inputs_are_imported(operator: str) -> None:
    """As one expression they ended the process."""
    names = [f"x{index}" for index in range(3000)]
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"])],
        "many",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in names],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert len(import_model(model, {}).inputs) == 3000


@pytest.mark.parametrize("periodic", [0, 1, 7, -1, 1 << 31])
def test_windows_are_periodic_unless_that_is_0(periodic: int) -> None:
    text = _WINDOWS.replace("PERIODIC", str(periodic))
    feeds = {"n": np.array(4)}
    results = fusion.compile(onnx.parser.parse_model(text)).run(feeds)
    for name, expected in run_onnxruntime(onnx.parser.parse_model(text), feeds).values.items():
        np.testing.assert_allclose(results[name], expected, atol=1e-6)


def test_factors_of_integers_are_not_cut_off() -> None:
    """ONNX Runtime has no such kernel."""
    arrays = {"a": np.array([[1, 3]], np.int32), "b": np.array([[1], [2]], np.int32), "c": np.array([[-5]], np.int32)}
    (result,) = fusion.compile(_GEMM).run(arrays).values()
    np.testing.assert_array_equal(result, [[int(0.5 * 7 - 5 * 1.5)]])


@pytest.mark.parametrize("by_value", [0, 1, 7])
def test_only_1_sorts_what_is_unique(by_value: int) -> None:
    text = """
        <ir_version: 10, opset_import: ["": 18]>
        graph () => (int64[N] y) <int64[3] x = {6, -9, 6}> { y = Unique<sorted = SORTED>(x) }
    """
    model = onnx.parser.parse_model(text.replace("SORTED", str(by_value)))
    np.testing.assert_array_equal(fusion.compile(model).run({})["y"], [-9, 6] if by_value == 1 else [6, -9])


@pytest.mark.parametrize("operator", ["Conv", "AveragePool"])
def test_a_rule_for_padding_without_a_name_is_none(operator: str) -> None:
    body = 'Conv <auto_pad = "", pads = [1, 0]> (x, w)'
    if operator == "AveragePool":
        body = 'AveragePool <auto_pad = "", pads = [1, 0], kernel_shape = [2], count_include_pad = 1> (x)'
    text = f"graph (float[1,1,4] x) => (y) <float[1,1,2] w = {{1, 2}}> {{ y = {body} }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {text}')
    feeds = {"x": np.arange(4, dtype=np.float32).reshape(1, 1, 4)}
    expected = run_onnxruntime(model, feeds).values["y"]
    np.testing.assert_array_equal(fusion.compile(model).run(feeds)["y"], expected)


@pytest.mark.parametrize(("mode", "outputs"), [(0, "y"), (1 << 32, "y"), (1, "y, m, v"), (2, "y, m, v")])
def test_only_1_normalizes_by_the_batch(mode: int, outputs: str) -> None:
    """onnx's inference wants three outputs of every mode whose low 32 bits are not 0."""
    text = f"""
        <ir_version: 10, opset_import: ["": 15]>
        graph (float[3,1] x, float[1] s) => ({outputs})
        {{ {outputs} = BatchNormalization <training_mode = {mode}> (x, s, s, s, s) }}
    """
    model = onnx.parser.parse_model(text)
    feeds = {"x": np.array([[1], [3], [8]], np.float32), "s": np.array([2], np.float32)}
    expected = run_onnxruntime(model, feeds).values
    for name, value in fusion.compile(model).run(feeds).items():
        np.testing.assert_allclose(value, feeds["s"] if expected[name] is None else expected[name], rtol=1e-5)


@pytest.mark.parametrize("shape", [(), (1, 3)])
def test_conditions_of_any_rank_are_a_row(shape: tuple[int, ...]) -> None:
    sizes = ",".join(map(str, shape))
    kind = f"bool[{sizes}]" if shape else "bool"
    text = f"graph ({kind} c, float[3,2] x) => (y) {{ y = Compress <axis = 0> (x, c) }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {text}')
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(3, 2), "c": np.ones(shape, bool)}
    expected = run_onnxruntime(model, feeds).values["y"]
    np.testing.assert_array_equal(fusion.compile(model).run(feeds)["y"], expected)


def test_the_rounding_of_what_is_not_rounded() -> None:
    """ONNX Runtime reads `nearest_mode` of no other mode."""
    text = """<ir_version: 8, opset_import: ["": 18]> graph (float[1,1,1,2] x) => (float[1,1,1,4] y)
        <float[4] scales = {1, 1, 1, 2}> { y = Resize <mode = "linear", nearest_mode = "FLOOR"> (x, "", scales) }"""
    check(onnx.parser.parse_model(text), {"x": np.array([[[[1, 3]]]], np.float32)})
