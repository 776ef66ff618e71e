"""Positions of RotaryEmbedding that count from the end, which ONNX Runtime refuses."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import fusion
from fusion.errors import ExecutionError
from tests.fuzz.engines import run_onnxruntime

MODEL = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["": 23]>
    graph (float[1,1,2,4] x, float[5,2] cosines, float[5,2] sines, int64[1,2] at) => (float[1,1,2,4] y)
    { y = RotaryEmbedding (x, cosines, sines, at) }
    """
)


def test_positions_are_from_zero() -> None:
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.normal(size=(1, 1, 2, 4)).astype("float32"),
        "cosines": rng.normal(size=(5, 2)).astype("float32"),
        "sines": rng.normal(size=(5, 2)).astype("float32"),
        "at": np.array([[4, 0]]),
    }
    compiled = fusion.compile(MODEL)
    np.testing.assert_allclose(compiled.run(feeds)["y"], run_onnxruntime(MODEL, feeds).values["y"], atol=1e-5)
    for position in (-1, 5):
        wrong = {**feeds, "at": np.array([[position, 0]])}
        assert run_onnxruntime(MODEL, wrong).status == "refused"
        with pytest.raises(ExecutionError, match="outside its axis"):
            compiled.run(wrong)
