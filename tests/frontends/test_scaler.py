"""`Scaler`, with which scikit-learn's pipelines begin, and what is behind it, in kernels."""

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
