"""TVM put two tiles of one size in one place, where a loop of overlapping vectors read the one and wrote the other: the
elements that two vectors share were scaled twice."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

import fusion
from tests.passes.modules import module, normal


@pytest.mark.parametrize("shape", [(2, 14, 3), (3, 21, 2), (2, 5, 3)])
def test_softmax_behind_which_rows_are_gathered(shape: tuple[int, ...]) -> None:
    x, rows = normal(*shape), [1, 0, 1, 1]

    def build(b: relax.BlockBuilder, v: relax.Var) -> relax.Expr:
        return relax.op.take(b.emit(relax.op.nn.softmax(v, -1)), relax.const(np.array(rows, "int64")), 0)

    grown = np.exp(x.astype("float64") - x.max(-1, keepdims=True))
    (found,) = fusion.compile(module(build, [x]), threads=1)(x)
    np.testing.assert_allclose(found, (grown / grown.sum(-1, keepdims=True))[rows], atol=1e-6)
