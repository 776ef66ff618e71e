"""What the softmax of an attention takes of a score, and where a mask leaves it out whatever it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Call, Var

from backends.cuda.kernels.affine import analyzer_below
from backends.cuda.kernels.attention.region import AttentionRegion
from backends.tensorir.accesses import flat_index, unravel
from backends.tensorir.emit import int64
from backends.tensorir.inlining import Resolver, is_branch, uses
from backends.tensorir.stages import shape_of
from fusion.declined import Declined

Expr = Any


def logit(region: AttentionRegion, place: Sequence[Var], score: Expr) -> Expr:
    """Return what the softmax takes of a score of this batch, row and key, which may stand behind the last key where
    the caller reads it in a branch.

    Raises:
        Declined: Elementwise stages read scores of another position.
    """
    if region.logits.buffer.same_as(region.made):
        return score
    scores, shape = region.scores, shape_of(region.made)
    parts = list(zip(place, (scores.batches, scores.rows, scores.columns), strict=True))
    analyzer = analyzer_below(parts)
    batch, row, key = place
    position = analyzer.simplify((batch * scores.rows + row) * scores.columns + key)

    def load(buffer: Var, index: Sequence[Expr]) -> Expr:
        if not buffer.same_as(region.made):
            return tirx.BufferLoad(buffer, list(index))
        if not analyzer.can_prove_equal(flat_index(shape, list(index), analyzer), position):
            raise Declined("scores of another position are read")
        return score

    resolver = Resolver(region.stages, load, analyzer)
    indices = [analyzer.simplify(index) for index in _unravel_parts(parts, shape)]
    axes = (axis.var for axis in region.logits.spatial)
    value = resolver.resolve(region.logits.value, dict(zip(axes, indices, strict=True)))
    for var, bound in reversed(resolver.bindings):
        value = tirx.Let(var, bound, value)
    return value


def _unravel_parts(parts: Sequence[tuple[Var, int]], shape: Sequence[int]) -> list[Expr]:
    """Return the indices of an element in a shape, of positions in so many of its leading axes each. All scores may be
    more than an int32 counts: no index is made of a position among all."""
    indices: list[Expr] = []
    for var, extent in parts:
        begin = end = len(indices)
        while end < len(shape) and prod(shape[begin:end]) < extent:
            end += 1
        indices += unravel(var, shape[begin:end]) if end > begin else []
    return indices + [int64(0)] * (len(shape) - len(indices))


def left_out(region: AttentionRegion, place: Sequence[Var]) -> Expr | None:
    """Return whether the softmax takes -inf of a score of this batch, row and key whatever the score is; None where no
    mask chooses so. Masks of numbers that are added do not: with a score of NaN they are none that leave it out."""
    score = Var("score", "float32")
    found = _is_infinite(logit(region, place, score), (score,))
    return None if isinstance(found, bool) else found


def _is_infinite(value: Expr, scores: tuple[Var, ...]) -> Expr | bool:
    """Return whether a value is -inf whatever the score is, and what is computed of it; False where that is not
    known."""
    if isinstance(value, tirx.FloatImm):
        return bool(value.value == -math.inf)
    if not _depends(value, scores):
        return tirx.EQ(value, tirx.const(-math.inf, "float32"))
    if isinstance(value, tirx.Let):
        if _depends(value.value, scores):
            return _is_infinite(value.body, (*scores, value.var))
        inner = _is_infinite(value.body, scores)
        return inner if isinstance(inner, bool) else tirx.Let(value.var, value.value, inner)
    if isinstance(value, tirx.Select):
        return _chosen(value.condition, value.true_value, value.false_value, scores)
    if isinstance(value, Call) and is_branch(value):
        condition, then, otherwise = value.args
        return _chosen(condition, then, otherwise, scores)
    return False


def _chosen(condition: Expr, then: Expr, otherwise: Expr, scores: tuple[Var, ...]) -> Expr | bool:
    if _depends(condition, scores):
        return False
    first, second = _is_infinite(then, scores), _is_infinite(otherwise, scores)
    if isinstance(first, bool) and isinstance(second, bool):
        return first if first == second else condition if first else tirx.Not(condition)
    first, second = (tirx.const(each, "bool") if isinstance(each, bool) else each for each in (first, second))
    return tirx.if_then_else(condition, first, second)


def _depends(value: Expr, scores: tuple[Var, ...]) -> bool:
    return any(uses(value, var) for var in scores)
