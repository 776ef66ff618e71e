"""Converters that told floats from integers by a name that begins with "float": bfloat16 is none by that. And
weights of recurrences, which a pass that folds everything but bfloat16 was to cast."""

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


def test_constant_weights_of_a_recurrence() -> None:
    dtype = ml_dtypes.bfloat16
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=shape) for name, shape in (("x", (2, 1, 3)), ("w", (1, 5, 3)), ("r", (1, 5, 5)))}
    known = onnx.helper.make_tensor("r", onnx.TensorProto.BFLOAT16, [1, 5, 5], arrays["r"].ravel())
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["": 22]>
        graph (bfloat16[2,1,3] x, bfloat16[1,5,3] w) => (bfloat16[2,1,1,5] y)
        { y = RNN <hidden_size = 5> (x, w, r) }
        """
    )
    model.graph.initializer.append(known)
    narrow = {name: array.astype(dtype) for name, array in arrays.items()}
    module = fusion.compile(model, strict=True)
    found = module.run({"x": narrow["x"], "w": narrow["w"]})["y"].astype(np.float32)[:, 0, 0]
    x, w, r = (narrow[name].astype(np.float32) for name in ("x", "w", "r"))
    first = np.tanh(x[0, 0] @ w[0].T)
    second = np.tanh(x[1, 0] @ w[0].T + first @ r[0].T)
    np.testing.assert_allclose(found, [first, second], atol=1e-2)
