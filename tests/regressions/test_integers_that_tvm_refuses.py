"""TVM has no mean of integers and no sign of unsigned ones; both ended the compilation."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

import fusion
from tests.module.small_models import model


@pytest.mark.parametrize(("op", "dtype"), [("ReduceMean", "int32"), ("ReduceMean", "int64"), ("Sign", "uint8")])
def test_integers(op: str, dtype: str) -> None:
    x = np.random.default_rng(0).integers(0 if dtype == "uint8" else -9, 9, (3, 10)).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    small = model([helper.make_node(op, ["x"], ["y"])], [("x", kind, [3, 10])], [("y", kind, None)])
    (expected,) = ort.InferenceSession(small.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(fusion.compile(small, strict=True)(x)[0], expected)
