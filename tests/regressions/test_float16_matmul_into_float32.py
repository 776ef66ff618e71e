"""A product of float16 operands with a float32 result was taken for a float32 anchor, whose stores then failed."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

import fusion
from tests.regressions.relax_models import module


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4, 6)])
@pytest.mark.parametrize("out_dtype", ["float16", "float32"])
def test_product(shape: tuple[int, ...], out_dtype: str) -> None:
    rng = np.random.default_rng([3, len(shape)])
    x, y = rng.normal(size=shape).astype("float16"), rng.normal(size=(*shape[:-2], 6, 8)).astype("float16")

    def build(builder: relax.BlockBuilder, a: relax.Var, b: relax.Var) -> relax.Expr:
        product = builder.emit(op.matmul(a, b, out_dtype=out_dtype))
        return op.astype(product, "float16")

    compiled = fusion.compile(module(build, {"a": (x.shape, "float16"), "b": (y.shape, "float16")}), threads=1)
    (made,) = compiled(x, y)
    np.testing.assert_allclose(made, x.astype("float64") @ y.astype("float64"), rtol=5e-3, atol=5e-3)
