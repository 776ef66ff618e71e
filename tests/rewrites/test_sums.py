"""Sums over tensors that were joined for it, and those that stay."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from fusion.rewrites import Rewrite
from tests.passes.modules import Build, apply, names, normal, unchanged


def stacked(axis: int = 0, keepdims: bool = False) -> Build:
    def build(b: relax.BlockBuilder, *x: relax.Var) -> relax.Expr:
        joined = b.emit(op.concat([b.emit(op.expand_dims(each, axis)) for each in x], axis))
        return op.sum(joined, [axis], keepdims=keepdims)

    return build


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [0, -1])
def test_sums_of_stacked_tensors_are_additions(axis: int, keepdims: bool) -> None:
    after = apply(Rewrite(), stacked(axis, keepdims), [normal(3, 5, seed=seed) for seed in range(3)])
    assert [name for name in names(after) if name in ("add", "sum", "concat")] == ["add", "add"]


def test_sums_that_are_rounded_once_stay() -> None:
    """2048 + 1 + 1 is 2050 in float32, and 2048 where each addition is rounded to float16."""
    unchanged(Rewrite(), stacked(), [np.full((3, 5), value, "float16") for value in (2048, 1, 1)])
