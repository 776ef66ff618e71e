"""Attentions of repeated keys and values, in the forms in which exporters write them."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from fusion.rewrites import Rewrite
from fusion.rewrites.graph import RewriteGraph
from fusion.rewrites.rules.heads import SHARED_HEADS
from tests.passes.modules import evaluate_both, module


@pytest.mark.parametrize(
    ("rows", "batch", "mask", "form"),
    [
        (1, (2,), (1, 1), "broadcast"),
        (1, (), (6, 1), "keys as columns"),
        (4, (2,), (1, 0), "tile"),
        (4, (), (6, 0), "broadcast"),
        (4, (2,), (1, 1), "keys as columns"),
    ],
)
def test_nothing_is_repeated(rows: int, batch: tuple[int, ...], mask: tuple[int, int], form: str) -> None:
    """`mask` has so many heads, and one row or (0) all."""
    columns, random = form == "keys as columns", np.random.default_rng(rows)
    key = (5, 9) if columns else (9, 5)
    shapes = [(*batch, 6, rows, 5), (*batch, 2, *key), (*batch, 2, 9, 7), (*batch, mask[0], mask[1] or rows, 9)]
    arrays = [random.standard_normal(shape).astype("float32") for shape in shapes]

    def build(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var, hide: relax.Var) -> relax.Expr:
        def repeated(x: relax.Expr, last: tuple[int, int]) -> relax.Expr:
            narrow = b.emit(op.expand_dims(x, len(batch) + 1))
            wide = op.broadcast_to(narrow, (*batch, 2, 3, *last))
            if form == "tile":
                wide = op.tile(narrow, (*([1] * len(batch)), 1, 3, 1, 1))
            return b.emit(op.reshape(b.emit(wide), (*batch, 6, *last)))

        keys, rank = repeated(k, key), len(batch) + 3
        if not columns:
            keys = b.emit(op.permute_dims(keys, [*range(rank - 2), rank - 1, rank - 2]))
        scores = b.emit(op.multiply(relax.const(np.float32(0.4)), b.emit(op.matmul(q, keys))))
        hidden = b.emit(op.where(b.emit(op.greater(hide, relax.const(np.float32(1)))), hide, scores))
        weights = b.emit(op.nn.softmax(b.emit(op.add(hide, hidden)), rank - 1))
        return op.matmul(weights, repeated(v, (9, 7)))

    before = module(build, arrays)
    result = Rewrite((SHARED_HEADS,)).run(before)
    assert result.fact.applied[SHARED_HEADS.name] == 1
    assert not {"broadcast_to", "tile"} & {value.op for value in RewriteGraph(result.mod["main"]).values}
    (got,), (want,) = evaluate_both(result.mod, before, arrays)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * float(np.abs(want).max()))
