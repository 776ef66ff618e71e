"""Dilated convolutions: which become images of every d-th pixel."""

from __future__ import annotations

import pytest
from tvm import relax
from tvm.relax import op

from fusion.rewrites import Rewrite
from tests.passes.modules import apply, names, normal, unchanged, weight

APART = ["reshape", "permute_dims", "reshape"]


@pytest.mark.parametrize(("height", "width", "step"), [(14, 14, 2), (14, 20, 2), (24, 21, 3), (28, 36, 4)])
def test_a_dilated_window_becomes_a_dense_one_of_fewer_pixels(height: int, width: int, step: int) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.conv2d(x, weight(40, 32, 3, 3), padding=step, dilation=step)

    after = apply(Rewrite(), build, [normal(2, 32, height, width)])
    assert names(after) == [*APART, "nn.conv2d", *APART]


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((1, 32, 14, 14), {"padding": 1, "dilation": 2}),
        ((1, 32, 14, 14), {"padding": 2, "dilation": (2, 1)}),
        ((1, 32, 14, 14), {"padding": 2, "dilation": 2, "strides": 2}),
        ((1, 32, 14, 14), {"padding": 2, "dilation": 2, "groups": 2}),
        ((1, 32, 12, 12), {"padding": 2, "dilation": 2}),
        ((1, 32, 15, 14), {"padding": 2, "dilation": 2}),
        ((1, 16, 14, 14), {"padding": 2, "dilation": 2}),
        ((1, 128, 14, 14), {"padding": 2, "dilation": 2}),
    ],
)
def test_others_stay(shape: tuple[int, ...], options: dict[str, object]) -> None:
    inside = shape[1] // options.get("groups", 1)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.conv2d(x, weight(32, inside, 3, 3), **options)

    unchanged(Rewrite(), build, [normal(*shape)])
