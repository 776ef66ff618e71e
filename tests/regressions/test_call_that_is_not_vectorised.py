"""`round` becomes a loop over lanes in TVM, in which variables bound in the vectorised loop around it were unknown."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from tests.backends.cpu.kernels import run, schedule


@pytest.mark.parametrize("size", [3, 16, 37])
@pytest.mark.parametrize("name", ["round", "floor", "trunc", "tan", "asinh"])
def test_call_of_a_computed_value(name: str, size: int) -> None:
    x = np.random.default_rng([size]).normal(0, 3, size).astype("float32")
    scale = np.array([1.5], "float32")

    def build(builder: relax.BlockBuilder, value: relax.Var, factor: relax.Var) -> relax.Expr:
        scaled = builder.emit(op.add(builder.emit(op.multiply(value, factor)), factor))
        called = builder.emit(getattr(op, name)(scaled))
        return op.add(called, factor)

    numpy_name = {"asinh": "arcsinh"}.get(name, name)
    expected = getattr(np, numpy_name)(x * scale + scale) + scale
    (made,) = run(schedule(build, [x, scale]), [x, scale])
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)
