"""`round`, `isnan` and branches that differ between lanes become loops over lanes in TVM, where variables of the
vectorised loop around are unknown."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from tvm import relax
from tvm.relax import op

import fusion
from tests.backends.cpu.kernels.memory_bound import run, schedule
from tests.fuzz.engines import run_reference


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


def test_branches_behind_a_bound_index() -> None:
    """Pixels inside of an image whose size only a call knows, at coordinates that are cast in the same kernel."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 16]> graph (int8[n,channels,rows,3] x, float16[2,2,2,2] grid)
        => (int8[2,channels,2,2] y) { y = GridSample <mode = "nearest"> (x, grid) }"""
    )
    rng = np.random.default_rng(0)
    x, grid = rng.integers(-9, 9, (2, 1, 1, 3), "int8"), rng.normal(size=(2, 2, 2, 2)).astype("float16")
    module = fusion.compile(model, threads=1, wait=True)
    (wanted,) = run_reference(model, {"x": x, "grid": grid}).values.values()
    np.testing.assert_array_equal(module(x, grid)[0], wanted)
    assert all(form.opened is not None for form in module.specializations), module.explain()
