"""Maxima and minima over axes, and where they are: NaN if any element is, and of infinities alone infinite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx, topi

from backends.tensorir.legalize.common import (
    FLegalize,
    drop,
    interleave,
    is_float,
    largest,
    normalized_axes,
    reduce_axes,
    smallest,
)
from fusion.bindings import data_of

Expr = Any


def _extremum(reducer: Callable[..., Expr], name: str) -> FLegalize:
    def compute(x: te.Tensor, axes: list[int], keepdims: bool) -> te.Tensor:
        rank = len(x.shape)
        reduced = dict(zip(axes, reduce_axes(x.shape, axes), strict=True))

        def element(*at: Expr) -> Expr:
            kept = drop(at, axes) if keepdims else at
            return reducer(x(*interleave(rank, reduced, kept)), axis=list(reduced.values()))

        shape = [1 if axis in reduced else extent for axis, extent in enumerate(x.shape)]
        return te.compute(shape if keepdims else drop(x.shape, axes), element, name)

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        rank = len(data_of(call).ty.shape)
        axes = list(range(rank)) if call.attrs.axis is None else normalized_axes(call.attrs.axis, rank)
        if not axes:
            return data_of(call)
        x = data_of(call)
        found = builder.call_te(
            compute, _ordered(builder, x), axes, bool(call.attrs.keepdims), primfunc_name_hint=name
        )
        return relax.op.astype(builder.emit(found), "bool") if _is_bool(x) else found

    return legalize


def _place(extremum: Callable[..., Expr], name: str) -> FLegalize:
    """Return the first place of the extremum, of NaN where there is any, as in NumPy and PyTorch: the least index of
    what equals it. Both reductions run on vectors; TVM's one that carries the index along does not."""

    def compute(x: te.Tensor, axis: int, keepdims: bool) -> te.Tensor:
        rank, kept_shape = len(x.shape), drop(x.shape, [axis])
        (k,) = reduce_axes(x.shape, [axis])
        best = te.compute(
            kept_shape, lambda *kept: extremum(x(*interleave(rank, {axis: k}, kept)), axis=k), f"{name}_value"
        )
        (place,) = reduce_axes(x.shape, [axis])

        def candidate(*kept: Expr) -> Expr:
            value, index = x(*interleave(rank, {axis: place}, kept)), place.var.astype("int32")
            found = tirx.Select(tirx.EQ(value, best(*kept)), index, tirx.max_value("int32"))
            if is_float(x.dtype):
                found = tirx.Select(value <= tirx.const(float("inf"), x.dtype), found, index)
            return smallest(found, axis=place)

        first = te.compute(kept_shape, candidate, name)
        wide = te.compute(kept_shape, lambda *kept: first(*kept).astype("int64"), f"{name}_int64")
        return topi.expand_dims(wide, axis) if keepdims else wide

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        x, axis, keepdims = _ordered(builder, data_of(call)), call.attrs.axis, bool(call.attrs.keepdims)
        if axis is not None:
            return builder.call_te(compute, x, int(axis) % len(x.ty.shape), keepdims, primfunc_name_hint=name)
        flat = builder.emit(relax.op.reshape(x, (-1,)))
        place = builder.call_te(compute, flat, 0, False, primfunc_name_hint=name)
        return relax.op.reshape(builder.emit(place), [1] * len(x.ty.shape)) if keepdims else place

    return legalize


def _ordered(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """Return `x`, bytes for booleans: TVM knows no lowest of these."""
    return builder.emit(relax.op.astype(x, "uint8")) if _is_bool(x) else x


def _is_bool(x: relax.Expr) -> bool:
    return str(x.ty.dtype.dtype) == "bool"


EXTREMA: dict[str, FLegalize] = {
    "relax.max": _extremum(largest, "max"),
    "relax.min": _extremum(smallest, "min"),
    "relax.argmax": _place(largest, "argmax"),
    "relax.argmin": _place(smallest, "argmin"),
}
