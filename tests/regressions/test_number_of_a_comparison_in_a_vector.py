"""A comparison turned into a number and used twice is bound to a variable; as a vector it ended code generation."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from tests.backends.cpu.kernels.memory_bound import run, schedule


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
@pytest.mark.parametrize("size", [3, 16, 37])
def test_number_used_twice(dtype: str, size: int) -> None:
    rng = np.random.default_rng([7, size])
    x, y = rng.integers(-3, 4, (2, size)).astype(dtype)

    def build(builder: relax.BlockBuilder, a: relax.Var, b: relax.Var) -> relax.Expr:
        nonzero = builder.emit(op.not_equal(a, relax.const(0, dtype)))
        both = builder.emit(op.logical_and(builder.emit(op.less(a, b)), nonzero))
        number = builder.emit(op.astype(both, dtype))
        return op.add(builder.emit(op.multiply(number, a)), number)

    number = ((x < y) & (x != 0)).astype(dtype)
    (made,) = run(schedule(build, [x, y]), [x, y])
    np.testing.assert_array_equal(made, number * x + number)


def test_gather_behind_wrapped_indices() -> None:
    """As the losses do: negative indices are wrapped by a comparison, then read another tensor."""
    data, indices = np.arange(12, dtype="float32").reshape(3, 4), np.array([-1, 0, 2, -3, 1, -2, 1, 0])

    def build(builder: relax.BlockBuilder, table: relax.Var, at: relax.Var) -> relax.Expr:
        negative = builder.emit(op.astype(builder.emit(op.less(at, relax.const(0, "int64"))), "int64"))
        wrapped = builder.emit(op.add(at, builder.emit(op.multiply(negative, relax.const(3, "int64")))))
        return op.take(table, wrapped, axis=0)

    (made,) = run(schedule(build, [data, indices]), [data, indices])
    np.testing.assert_array_equal(made, data[indices])
