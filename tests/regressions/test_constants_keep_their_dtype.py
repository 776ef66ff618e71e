"""Passes made constants with `relax.const(array)`, which narrows int64 to int32 and float64 to float32."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import fusion
from tests.regressions.relax_models import module


@pytest.mark.parametrize("dtype", ["int64", "float64", "float16", "bool", "uint8"])
def test_folded_constant(dtype: str) -> None:
    values = (np.array([[1, 0, 1], [0, 1, 1]]) if dtype == "bool" else np.arange(6).reshape(2, 3)).astype(dtype)
    if dtype == "int64":
        values += 1 << 40  # beyond int32
    if dtype == "float64":
        values += 1 / 3  # no float32

    def build(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        folded = relax.op.permute_dims(relax.const(tvm.runtime.tensor(values)), [1, 0])
        return relax.op.where(x, builder.emit(folded), builder.emit(relax.op.zeros((3, 2), dtype)))

    (made,) = fusion.compile(module(build, {"x": ((3, 2), "bool")}), threads=1)(np.ones((3, 2), "bool"))
    assert made.dtype == values.dtype
    np.testing.assert_array_equal(made, values.T)


def test_scales_of_float64_stay_float64() -> None:
    rng = np.random.default_rng(0)
    x, weight, scale = rng.normal(size=(4, 8)), rng.normal(size=(8, 5)), rng.normal(size=5)

    def build(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        product = builder.emit(relax.op.matmul(data, relax.const(weight, "float64")))
        scaled = builder.emit(relax.op.multiply(product, relax.const(scale, "float64")))
        return relax.op.add(scaled, relax.const(1.5, "float64"))

    (made,) = fusion.compile(module(build, {"data": ((4, 8), "float64")}), threads=1)(x)
    np.testing.assert_allclose(made, x @ weight * scale + 1.5, rtol=1e-12)
