"""Results of types that TVM has no tensors of, which were made constants of it, and of types that onnx's inference
tells wrongly."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

import fusion
from fusion.errors import InvalidModelError, UnsupportedOperatorError
from tests import internal_errors
from tests.fuzz.engines import run_onnxruntime

_CONSTANT = """
    <ir_version: 11, opset_import: ["": 25]>
    graph () => (KIND[2,1] y) <KIND[1,2] x> { y = Transpose(x) }
"""
_TEXTS = """
    <ir_version: 11, opset_import: ["": 25, "ai.onnx.ml": 1]>
    graph (int64[0] x) => (string[0] y)
    { y = ai.onnx.ml.CategoryMapper<cats_int64s = [1, 2], cats_strings = ["a", "b"]>(x) }
"""
_NORMS = """
    <ir_version: 11, opset_import: ["": 23]>
    graph (double[2,3] x, float[3] scale, float[2,3] scales) => (KIND[2,3] y, KIND[2,3] z)
    { y = RMSNormalization(x, scale) z = RMSNormalization<axis = 0>(x, scales) }
"""


def _constant(kind: str, array: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(_CONSTANT.replace("KIND", kind).replace(f"<{kind}[1,2] x>", ""))
    model.graph.initializer.append(onnx.numpy_helper.from_array(array, "x"))
    return model


def test_a_constant_of_four_bits_is_a_result() -> None:
    values = np.array([[1, -3]], ml_dtypes.int4)
    with internal_errors.collect() as defects:
        (result,) = fusion.compile(_constant("int4", values)).run({}).values()
    np.testing.assert_array_equal(result.astype(np.int8), [[1], [-3]])
    assert not defects


def test_a_constant_that_nothing_holds_is_refused() -> None:
    with pytest.raises(UnsupportedOperatorError):
        fusion.compile(_constant("float4e2m1", np.array([[1, 2]], ml_dtypes.float4_e2m1fn)))


def test_constants_are_cast_to_exponents_as_in_onnx_runtime() -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 12, opset_import: ["": 26]>
        graph () => (float8e8m0[5] y, float8e8m0[5] z) <int32[5] x = {0, -1, -5, 7, 8}>
        { y = Cast<to = 24>(x) z = Cast<to = 24, saturate = 0>(x) }
        """
    )
    results, expected = fusion.compile(model).run({}), run_onnxruntime(model, {}).values
    for name, value in results.items():
        np.testing.assert_array_equal(value.astype(np.float32), expected[name].astype(np.float32))


def test_no_texts_are_a_result() -> None:
    with internal_errors.collect() as defects:
        (result,) = fusion.compile(onnx.parser.parse_model(_TEXTS)).run({"x": np.zeros(0, np.int64)}).values()
    assert result.shape == (0,)
    assert not defects


def test_a_root_mean_square_norm_has_the_dtype_of_its_scale() -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float64)
    feeds = {"x": x, "scale": np.array([1, 2, 3], np.float32), "scales": np.ones((2, 3), np.float32)}
    results = fusion.compile(onnx.parser.parse_model(_NORMS.replace("KIND", "float"))).run(feeds)
    rows = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5) * [1, 2, 3]
    np.testing.assert_allclose(results["y"], rows, rtol=1e-5)
    np.testing.assert_allclose(results["z"], x / np.sqrt((x * x).mean() + 1e-5), rtol=1e-5)
    assert {result.dtype for result in results.values()} == {np.dtype(np.float32)}


def test_a_norm_declared_with_the_dtype_of_its_input_is_refused() -> None:
    with pytest.raises(InvalidModelError, match="declared as float64 and computed as float32"):
        fusion.compile(onnx.parser.parse_model(_NORMS.replace("KIND", "double")))


def test_statistics_of_a_layer_norm_of_float64_are_float32() -> None:
    """Its converter made them float64 and declined, and onnx's own function takes no scale of several rows."""
    text = """<ir_version: 8, opset_import: ["": 17]> graph (double[2,3] x, double[2,3] scale)
        => (double[2,3] y, float[2,1] m) { y, m, deviation = LayerNormalization (x, scale) }"""
    x = np.arange(6.0).reshape(2, 3)
    feeds = {"x": x, "scale": x + 1}
    model = onnx.parser.parse_model(text)
    expected = run_onnxruntime(model, feeds).values
    for name, value in fusion.compile(model).run(feeds).items():
        assert value.dtype == expected[name].dtype
        np.testing.assert_allclose(value, expected[name], rtol=1e-5)
