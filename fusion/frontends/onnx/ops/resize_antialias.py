"""Resize with antialias: for each axis, the last one first, the sum of a window of its elements times constant weights.

    for every place of the result, t along the axis
      for k in taps
        y[.., t, ..] += x[.., first[t] + k, ..] * weights[t, k] if first[t] + k < stop[t]
"""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.antialias import Filters, filters_of
from fusion.frontends.onnx.interpolate import ResizeAxis
from fusion.frontends.onnx.node import Node

_FRACTION = 22
"""Bits behind the point of a weight of bytes: ONNX Runtime's, and Pillow's."""


def resize_with_antialias(node: Node, axes: dict[int, ResizeAxis], transform: str) -> Expr:
    """Return the result of `node`, a Resize of `axes`.

    Raises:
        Declined: ONNX Runtime is to run it, or to refuse it.
    """
    mode, dtype = node.attr("mode", "nearest"), node.dtype(0)
    crops = transform == "tf_crop_and_resize"
    if mode not in ("linear", "cubic"):
        raise Declined(f"a resize with antialias and mode {mode}")
    if not dtype.startswith("float") and dtype != "uint8":
        raise Declined(f"interpolation of {dtype}")  # of int8, ONNX Runtime cuts off what is below 0
    x, changed = node.x(0), {at: axis for at, axis in axes.items() if axis.source != axis.target}
    if not changed:
        return x
    if crops and len(node.shape(0)) == 4 and 1 in changed:
        raise Declined("a crop of rows of channels")  # ONNX Runtime puts the fill value where its other layout has it
    excludes, cubic_a = bool(node.attr("exclude_outside", 0)), float(node.attr("cubic_coeff_a", -0.75))
    filters = {at: filters_of(axis, mode, transform, excludes, cubic_a) for at, axis in axes.items()}
    for at in sorted(changed, reverse=True):
        x = node.emit(_filter(node, x, at, filters[at], dtype))
    for at in sorted(axes, reverse=True) if crops else ():
        x = fill_outside(node, x, at, filters[at].outside)
    return x


def fill_outside(node: Node, x: Expr, position: int, outside: np.ndarray) -> Expr:
    """Return `x` with the fill value of `node` where `outside` [size of the axis] is set."""
    if not outside.any():
        return x
    column = outside.reshape([-1 if at == position else 1 for at in range(len(node.shape(0)))])
    fill = relax.const(node.attr("extrapolation_value", 0.0), node.dtype(0))
    return node.emit(relax.op.where(relax.const(column, "bool"), fill, x))


def _filter(node: Node, x: Expr, axis: int, filters: Filters, dtype: str) -> Expr:
    if dtype == "uint8":
        return _filter_bytes(node, x, axis, filters)
    wide = "float32" if dtype == "float16" else dtype
    total = _sum(node, x, axis, filters, filters.weights.astype(wide))
    return total if wide == dtype else relax.op.astype(total, dtype)


def _filter_bytes(node: Node, x: Expr, axis: int, filters: Filters) -> Expr:
    """Sum integers, and round each axis's result to a byte."""
    weights = np.trunc(np.ldexp(filters.weights, _FRACTION) + np.copysign(np.float32(0.5), filters.weights))
    total = _sum(node, x, axis, filters, weights.astype("int32"))
    rounded = relax.op.add(total, relax.const(1 << (_FRACTION - 1), "int32"))
    whole = relax.op.right_shift(rounded, relax.const(_FRACTION, "int32"))
    return relax.op.astype(relax.op.clip(whole, 0, 255), "uint8")


def _sum(node: Node, x: Expr, axis: int, filters: Filters, weights: np.ndarray) -> Expr:
    if x.ty.dtype != weights.dtype:
        x = node.emit(relax.op.astype(x, str(weights.dtype)))

    def weighted(x: te.Tensor, first: te.Tensor, stop: te.Tensor, weights: te.Tensor) -> te.Tensor:
        shape = [int(extent) for extent in x.shape]
        last = tirx.const(shape[axis] - 1, "int64")
        shape[axis] = int(weights.shape[0])
        tap = te.reduce_axis((0, int(weights.shape[1])), "tap")

        def element(*place: tirx.Expr) -> tirx.Expr:
            at, source = place[axis], first[place[axis]] + tap
            read = (*place[:axis], te.min(source, last), *place[axis + 1 :])
            value = x[read] * weights[at, tap]
            return te.sum(tirx.Select(source < stop[at], value, tirx.const(0, x.dtype)), axis=tap)

        return te.compute(shape, element, name="resized")

    window = (relax.const(array) for array in (filters.first, filters.stop, weights))
    return node.emit(node.builder.call_te(weighted, x, *window, primfunc_name_hint="antialiased"))
