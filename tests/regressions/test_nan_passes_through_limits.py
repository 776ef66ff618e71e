"""relu, clip, max and min of NaN are NaN, as in ONNX Runtime; they once were the bound."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

import fusion
from tests.module.small_models import FLOAT, model

X = np.array([[1, np.nan, -3, -4, np.nan, 7, 0.5] * 5] * 2, np.float32)
BOUNDS = {"low": np.float32(-1), "high": np.float32(2), "row": np.linspace(-1, 1, 35, dtype=np.float32)}


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("Relu", ["x"]), ("Clip", ["x", "low", "high"]), ("Clip", ["x", "low"]), ("Clip", ["x", "", "high"]),
        ("Max", ["x", "low"]), ("Max", ["low", "x"]), ("Min", ["x", "high"]), ("Min", ["x", "row"]),
        ("LeakyRelu", ["x"]), ("HardSigmoid", ["x"]),
    ],
)  # fmt: skip
def test_nan(op: str, inputs: list[str]) -> None:
    weights = {name: np.asarray(BOUNDS[name]) for name in inputs if name in BOUNDS}
    small = model([helper.make_node(op, inputs, ["y"])], [("x", FLOAT, [2, 35])], [("y", FLOAT, [2, 35])], weights)
    (expected,) = ort.InferenceSession(small.SerializeToString()).run(None, {"x": X})
    assert np.isnan(expected).any()
    np.testing.assert_allclose(fusion.compile(small, strict=True)(X)[0], expected, rtol=1e-6)


def test_nan_behind_a_product() -> None:
    weight = np.random.default_rng(0).standard_normal((35, 8)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    small = model(nodes, [("x", FLOAT, [2, 35])], [("y", FLOAT, [2, 8])], {"w": weight})
    assert np.isnan(fusion.compile(small, strict=True)(X)[0]).all()
