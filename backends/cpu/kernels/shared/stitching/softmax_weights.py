"""Finds the exponentials of a softmax: e^(x - m), where m is the maximum of a row that x is an element of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tvm import tirx
from tvm.ir import Call, Op, TensorLoad, Var
from tvm_ffi.structural import structural_equal

from backends.tensorir.emit import Expr
from backends.tensorir.extents import is_same
from backends.tensorir.intrinsics import SOFTMAX_WEIGHT
from backends.tensorir.stages import Stage, substitute
from fusion.structural import map_nodes

_EXP = Op.get("tirx.exp")


def with_weights(stages: Sequence[Stage]) -> list[Stage]:
    """Return `stages` with `SOFTMAX_WEIGHT`, which takes fewer operations, for each such exponential."""
    tops = {stage.buffer: stage for stage in stages if stage.is_softmax_maximum}
    return [_with_weights(stage, tops) for stage in stages] if tops else list(stages)


def _with_weights(stage: Stage, tops: Mapping[Var, Stage]) -> Stage:
    def weigh(call: Call) -> Expr:
        if not call.op.same_as(_EXP) or str(call.ty.dtype) != "float32":
            return call
        (distance,) = call.args
        return tirx.call_intrin("float32", SOFTMAX_WEIGHT, distance) if _is_distance(distance, stage, tops) else call

    value = map_nodes(stage.value, (Call, weigh))
    return stage if value.same_as(stage.value) else replace(stage, value=value)


def _is_distance(value: Expr, stage: Stage, tops: Mapping[Var, Stage]) -> bool:
    """Return whether a value over the axes of `stage` is x - m. It is NaN or not above 0 then: a maximum passes NaN
    over, but is one of what stands behind."""
    if not isinstance(value, tirx.Sub) or not isinstance(value.b, TensorLoad):
        return False
    top = tops.get(value.b.source)
    if top is None:
        return False
    row = list(value.b.indices)
    along = [axis for axis in (*stage.spatial, *stage.reduce) if not any(axis.var.same_as(at) for at in row)]
    if len(along) != len(top.reduce):
        return False
    pairs = list(zip(top.reduce, along, strict=True))
    if not all(is_same(own.extent, axis.extent) for own, axis in pairs):
        return False
    reduced = {own.var: axis.var for own, axis in pairs}
    fixed = dict(zip((axis.var for axis in top.spatial), row, strict=True))
    return bool(structural_equal(substitute(top.value, fixed | reduced), value.a))
