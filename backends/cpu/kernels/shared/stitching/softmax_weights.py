"""Finds distances x - m, where m is the maximum of a row that x is an element of, and the exponentials of a softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tvm import tirx
from tvm.ir import Call, Op, TensorLoad, Var
from tvm_ffi.structural import StructuralMutator, structural_equal

from backends.cpu.vector_terms import rounded
from backends.tensorir.emit import Expr
from backends.tensorir.extents import is_same
from backends.tensorir.intrinsics import SOFTMAX_WEIGHT
from backends.tensorir.stages import Stage, substitute
from fusion.structural import mutate

_EXP = Op.get("tirx.exp")
_FLOATS = ("float32", "float64")


def with_weights(stages: Sequence[Stage]) -> list[Stage]:
    """Return `stages` with `SOFTMAX_WEIGHT`, which takes fewer operations, for each such exponential, and with
    distances of numbers that are rounded as their maximum is.

    A product that a multiply-add subtracts it from is not: what was rounded off the largest, up to 128 from 2^31 on,
    would be its distance, and e^x of that infinite.
    """
    tops = _maxima(stages)
    softmax_tops = {stage.buffer: stage for stage in stages if stage.is_softmax_maximum}
    return [_with_weights(stage, tops, softmax_tops) for stage in stages] if tops else list(stages)


def _maxima(stages: Sequence[Stage]) -> dict[Var, Stage]:
    """Return the maximum of a row that each buffer has; one may have it in places only, as those where it is finite."""
    found: dict[Var, Stage] = {}
    for stage in stages:
        if stage.combine is tirx.Max and str(stage.value.ty.dtype) in _FLOATS:
            found[stage.buffer] = stage
        else:
            found.update((stage.buffer, found[load.source]) for load in _chosen(stage) if load.source in found)
    return found


def _chosen(stage: Stage) -> list[TensorLoad]:
    """Return the elements in the same place that `stage` chooses one of."""
    ways = (stage.value.true_value, stage.value.false_value) if isinstance(stage.value, tirx.Select) else ()
    loads = [way for way in ways if isinstance(way, TensorLoad)]
    return [load for load in loads if structural_equal(list(load.indices), stage.indices)]


def _with_weights(stage: Stage, tops: Mapping[Var, Stage], softmax_tops: Mapping[Var, Stage]) -> Stage:
    def weigh(call: Call, mutator: StructuralMutator) -> Expr:
        made = mutator.default_mutate(call)
        if not call.op.same_as(_EXP) or str(call.ty.dtype) != "float32":
            return made
        (distance,) = call.args
        found = _is_distance(distance, stage, softmax_tops)
        return tirx.call_intrin("float32", SOFTMAX_WEIGHT, *made.args) if found else made

    def subtract(value: tirx.Sub, mutator: StructuralMutator) -> Expr:
        made = mutator.default_mutate(value)
        return rounded(made.a) - made.b if _is_distance(value, stage, tops) else made

    value = mutate(stage.value, [(Call, weigh), (tirx.Sub, subtract)])
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
