"""Values of bfloat16 that were bound to variables, and vectors of one value, ended TVM's legalisation of that type; in
a `Let` it left them as they were. Functions without a form on vectors lost their variables."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

import fusion
from tests.regressions.relax_models import Build, module

Expected = Callable[[np.ndarray], np.ndarray]


def _twice(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    doubled = builder.emit(op.add(x, x))
    return op.multiply(doubled, doubled)


def _ones_behind(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    ones = builder.emit(op.full((4, int(x.ty.shape[1])), relax.const(1, "bfloat16"), "bfloat16"))
    return op.concat([x, builder.emit(op.strided_slice(ones, axes=[0], begin=[0], end=[1]))], 0)


CASES: dict[str, tuple[Build, Expected]] = {
    "a vector of one number": (_ones_behind, lambda x: np.concatenate([x, np.ones_like(x[:1])])),
    "value used twice": (_twice, lambda x: (x + x) * (x + x)),
    "sum of rows": (lambda builder, x: op.sum(x, -1), lambda x: x.sum(-1)),
    "maximum of rows": (lambda builder, x: op.max(x, -1), lambda x: x.max(-1)),
    "maximum of columns": (lambda builder, x: op.max(x, 0), lambda x: x.max(0)),
    "softmax": (
        lambda builder, x: op.nn.softmax(x, -1),
        lambda x: np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True),
    ),
    "function of scalars": (lambda builder, x: op.atan(x), np.arctan),
    "transposed convolution": (
        lambda builder, x: op.nn.conv2d_transpose(
            builder.emit(op.reshape(x, (1, 1, *x.ty.shape))),
            relax.const(np.array([1, 2], ml_dtypes.bfloat16).reshape(1, 1, 2, 1)),
            (1, 2),
        ),
        lambda x: np.stack(
            [np.pad(x, ((0, 1), (0, 0))) + 2 * np.pad(x, ((1, 0), (0, 0))), np.zeros((4, x.shape[1]))], 2
        ).reshape(1, 1, 4, -1)[..., :-1],
    ),
    "one value for all": (lambda builder, x: op.full(x.ty.shape, relax.const(2.5, "bfloat16")), lambda x: 0 * x + 2.5),
    "number for a row": (
        lambda builder, x: op.broadcast_to(builder.emit(op.strided_slice(x, [1], [0], [1])), x.ty.shape),
        lambda x: 0 * x + x[:, :1],
    ),
    "edge around": (lambda builder, x: op.nn.pad(x, [1, 0, 0, 20]), lambda x: np.pad(x, ((1, 0), (0, 20)))),
    "edge around a function": (
        lambda builder, x: op.nn.pad(builder.emit(op.exp(x)), [1, 0, 0, 20]),
        lambda x: np.pad(np.exp(x), ((1, 0), (0, 20))),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [5, 16, 70])
def test_case(case: str, size: int) -> None:
    build, expected = CASES[case]
    x = np.random.default_rng([size]).normal(size=(3, size)).astype(ml_dtypes.bfloat16)
    (made,) = fusion.compile(module(build, {"x": (x.shape, "bfloat16")}), threads=1)(x)
    assert made.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(made.astype("float64"), expected(x.astype("float64")), rtol=1e-2, atol=1e-2)
