"""`round` and `isnan` become loops over lanes in TVM, where variables of the vectorised loop around are unknown."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from tests.backends.cpu.kernels.memory_bound import run, schedule


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


@pytest.mark.parametrize("shape", [(3, 4, 5), (7, 100)])
@pytest.mark.parametrize(("name", "dtype"), [("acos", "float32"), ("atanh", "float64"), ("isnan", "float32")])
def test_call_behind_a_bound_index(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(shape).uniform(-0.9, 0.9, shape).astype(dtype)
    (made,) = run(schedule(lambda builder, value: getattr(op, name)(value), [x]), [x])
    expected = getattr(np, {"acos": "arccos", "atanh": "arctanh"}.get(name, name))(x)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)
