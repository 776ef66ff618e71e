"""Converters that told floats from integers by a name that begins with "float": bfloat16 is none by that."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx.parser

import fusion

_MODEL = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["": 22]>
    graph (bfloat16[3] x, bfloat16[3] y, bfloat16[2,3] a, bfloat16[3,2] b) =>
    (bfloat16[1] mean, bfloat16[3] square, bfloat16[3] rest, bfloat16[2,2] product)
    <int64[1] axes = {0}, bfloat16 two = {16384}>
    {
        mean = ReduceMean(x, axes)
        square = Pow(x, two)
        rest = Mod<fmod = 1>(x, y)
        product = Gemm<alpha = 0.5>(a, b)
    }
    """
)


def test_fractions_are_kept() -> None:
    dtype = ml_dtypes.bfloat16
    x, y = np.array([0.5, -2.5, 3.25], dtype), np.array([2, 2, -2], dtype)
    a, b = np.arange(6).reshape(2, 3).astype(dtype), np.arange(6).reshape(3, 2).astype(dtype)
    outputs = fusion.compile(_MODEL).run({"x": x, "y": y, "a": a, "b": b})
    wide = [array.astype(np.float32) for array in (x, y, a, b)]
    np.testing.assert_allclose(outputs["mean"].astype(np.float32), [wide[0].mean()], rtol=1e-2)
    np.testing.assert_array_equal(outputs["square"].astype(np.float32), [0.25, 6.25, 10.5625])
    np.testing.assert_array_equal(outputs["rest"].astype(np.float32), np.fmod(wide[0], wide[1]))
    np.testing.assert_allclose(outputs["product"].astype(np.float32), wide[2] @ wide[3] / 2, rtol=1e-2)
