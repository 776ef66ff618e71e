"""Operators with which scikit-learn's pipelines begin and end, in kernels."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnxruntime import InferenceSession

import fusion
from fusion.errors import NeedsFallbackError

ML = "ai.onnx.ml"


def scaled(shape: tuple[int, ...], dtype: str, columns: int, scales: int | None = None) -> onnx.ModelProto:
    """Return a Scaler of so many columns, and a Softmax behind it."""
    rng = np.random.default_rng(0)
    offset, scale = rng.normal(size=columns), rng.normal(size=scales or columns)
    nodes = [
        helper.make_node("Scaler", ["x"], ["s"], domain=ML, offset=offset.tolist(), scale=scale.tolist()),
        helper.make_node("Softmax", ["s"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "scaled", [x], [y])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize(("shape", "columns"), [((5, 7), 7), ((5, 7), 1), ((1, 1), 1), ((6,), 1), ((2, 3, 4), 1)])
def test_it_is_a_difference_and_a_product(dtype: str, shape: tuple[int, ...], columns: int) -> None:
    model = scaled(shape, dtype, columns)
    x = (np.random.default_rng(1).normal(size=shape) * 9).astype(dtype)
    (got,) = fusion.compile(model, threads=1, strict=True, cache=False, database=False)(x)
    (want,) = InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


def test_columns_of_other_counts_are_left() -> None:
    with pytest.raises(NeedsFallbackError):
        fusion.compile(scaled((5, 7), "float32", 3), strict=True)


def test_labels_are_taken_of_a_row() -> None:
    text = f"""
        <ir_version: 9, opset_import: ["": 18, "{ML}": 3]>
        classifier (float[9, 4] x) => (int64[9] label, float[9, 2] some)
        <int64[3] classes = {{7, -5, 11}}, int64[3] first = {{0, 1, 2}},
         int64[2] columns = {{2, 0}}, int64[1] shape = {{-1}}>
        {{
            scores = {ML}.Scaler<offset = [0.5], scale = [2.0]>(x)
            some = {ML}.ArrayFeatureExtractor(scores, columns)
            three = Gather<axis = 1>(scores, first)
            best = ArgMax<axis = 1>(three)
            names = {ML}.ArrayFeatureExtractor(classes, best)
            label = Reshape(names, shape)
        }}
    """
    model = onnx.parser.parse_model(text)
    x = np.random.default_rng(2).normal(size=(9, 4)).astype(np.float32)
    module = fusion.compile(model, threads=1, strict=True, cache=False, database=False)
    for got, want in zip(module(x), InferenceSession(model.SerializeToString()).run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_known_columns_are_not_checked() -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": 18, "{ML}": 3]>
        taken (float[9, 4] x) => (float[9, 3] y)
        <int64[3] columns = {{2, 0, 3}}>
        {{ y = {ML}.ArrayFeatureExtractor(x, columns) }}
    """)
    x = np.random.default_rng(3).normal(size=(9, 4)).astype(np.float32)
    module = fusion.compile(model, threads=1, strict=True, cache=False, database=False)
    np.testing.assert_array_equal(module(x)[0], x[:, [2, 0, 3]])
    assert "check" not in module.explain()
