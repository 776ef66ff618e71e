"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import converts
from fusion.frontends.onnx.types import Shape
from fusion.frontends.onnx.weights import constant

Reduce = Callable[[Expr, list[int], bool], Expr]


def _l2(x: Expr, axes: list[int], keepdims: bool) -> Expr:
    return relax.op.sqrt(_sum_square(x, axes, keepdims))


def _sum_square(x: Expr, axes: list[int], keepdims: bool) -> Expr:
    return relax.op.sum(relax.op.multiply(x, x), axes, keepdims)


def _log_sum_exp(x: Expr, axes: list[int], keepdims: bool) -> Expr:
    """max + log(sum(exp(x - max))), which does not overflow; an infinite maximum is not subtracted from itself."""
    peak = relax.op.max(x, axes, True)
    zero = relax.op.zeros_like(peak)
    shift = relax.op.where(relax.op.isfinite(peak), peak, zero)
    total = relax.op.log(relax.op.sum(relax.op.exp(relax.op.subtract(x, shift)), axes, True))
    result = relax.op.add(total, shift)
    return result if keepdims else relax.op.squeeze(result, axes)


def _mean(x: Expr, axes: list[int], keepdims: bool) -> Expr:
    """TVM divides no integers; the mean of integers is rounded toward zero."""
    dtype = str(x.ty.dtype.dtype)
    if dtype.startswith(("float", "bfloat")):
        return relax.op.mean(x, axes, keepdims)
    mean = relax.op.mean(relax.op.astype(x, "float64"), axes, keepdims)
    return relax.op.astype(relax.op.trunc(mean), dtype)


_REDUCTIONS: dict[str, Reduce] = {
    "ReduceSum": relax.op.sum,
    "ReduceMean": _mean,
    "ReduceMax": relax.op.max,
    "ReduceMin": relax.op.min,
    "ReduceProd": relax.op.prod,
    "ReduceL1": lambda x, axes, keep: relax.op.sum(relax.op.abs(x), axes, keep),
    "ReduceL2": _l2,
    "ReduceSumSquare": _sum_square,
    "ReduceLogSum": lambda x, axes, keep: relax.op.log(relax.op.sum(x, axes, keep)),
    "ReduceLogSumExp": _log_sum_exp,
}
# Computed in a wider dtype: sums in half precision lose what the reference keeps; TVM has no minimum of bools.
_WIDER = {"float16": "float32", "bool": "uint8"}


@converts(*_REDUCTIONS)
def reduction(node: Node) -> Expr:
    axes = reduced_axes(node)
    x, dtype = node.x(0), node.dtype(0)
    if not axes:
        return _reduce_nothing(node)
    if 0 in node.shape(0):
        return constant(np.full(node.out_shape(), _of_empty_set(node.op, np.dtype(dtype)), dtype=dtype))
    wide = _WIDER.get(dtype, dtype)
    if wide != dtype:
        x = node.emit(relax.op.astype(x, wide))
    result = _REDUCTIONS[node.op](x, axes, keeps_axes(node))
    return result if wide == dtype else relax.op.astype(result, dtype)


def _of_empty_set(op: str, dtype: np.dtype) -> float | int | bool:
    """Return what the reduction of no elements is."""
    if op in ("ReduceMax", "ReduceMin"):
        if dtype.kind == "b":
            return op == "ReduceMin"
        if dtype.kind in "iu":
            return int(np.iinfo(dtype).min if op == "ReduceMax" else np.iinfo(dtype).max)
        return -np.inf if op == "ReduceMax" else np.inf
    values = {"ReduceLogSum": -np.inf, "ReduceLogSumExp": -np.inf, "ReduceProd": 1.0}
    return values.get(op, 0.0)


def _reduce_nothing(node: Node) -> Expr:
    """Apply what a reduction does to each element when no axis is reduced."""
    x = node.x(0)
    if node.op in ("ReduceL1", "ReduceL2"):
        return relax.op.abs(x)
    if node.op == "ReduceSumSquare":
        return relax.op.multiply(x, x)
    if node.op != "ReduceLogSum":
        return x
    if node.dtype(0).startswith("uint"):
        raise Declined("ONNX Runtime has no logarithm of unsigned integers")
    wide = x if node.is_floating(0) else node.emit(relax.op.astype(x, "float64"))
    return relax.op.astype(node.emit(relax.op.log(wide)), node.dtype(0))


def keeps_axes(node: Node) -> bool:
    """Return whether reduced axes stay, with one element: `keepdims` is 1, and no other number."""
    return bool(node.attr("keepdims", 1) == 1)


def reduced_axes(node: Node) -> list[int]:
    """Return the axes to reduce, ascending; where they are a run-time input, the shapes may still tell them."""
    rank = len(node.shape(0))
    if node.has(1) and not node.is_const(1):
        return _axes_from_shapes(node.shape(0), node.out_shape(), keeps_axes(node))
    axes = node.ints(1, "axes")
    if axes:
        return sorted({axis % rank for axis in axes})
    return [] if node.attr("noop_with_empty_axes", 0) else list(range(rank))


def _axes_from_shapes(source: Shape, target: Shape, keepdims: bool) -> list[int]:
    """Return the only set of axes that turns `source` into `target`. Axes of size 1 make no difference to any reduction
    but their being squeezed, so they are reduced where that is possible."""
    if keepdims:
        changed = [axis for axis, (have, want) in enumerate(zip(source, target, strict=True)) if have != want]
        return changed
    count = len(source) - len(target)
    fits = [
        axes
        for axes in combinations(range(len(source)), count)
        if tuple(size for axis, size in enumerate(source) if axis not in axes) == target
    ]
    distinct = {tuple(axis for axis in axes if source[axis] != 1) for axes in fits}
    if len(distinct) != 1:
        raise Declined("the axes are a run-time input")
    return list(fits[0])


@converts("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: Node) -> Expr:
    axes = list(range(2, len(node.shape(0))))
    return (relax.op.mean if node.op == "GlobalAveragePool" else relax.op.max)(node.x(0), axes, True)


@converts("LpNormalization")
def lp_normalization(node: Node) -> Expr:
    """x / norm along an axis; a norm of zero gives zero."""
    axis, order = node.axis(default=-1), node.attr("p", 2)
    dtype = node.dtype(0)
    wide = _WIDER.get(dtype, dtype)
    x = node.x(0) if wide == dtype else node.emit(relax.op.astype(node.x(0), wide))
    norm = node.emit(_l2(x, [axis], True) if order == 2 else relax.op.sum(relax.op.abs(x), [axis], True))
    nothing, one = (relax.const(number, wide) for number in (0, 1))
    result = relax.op.divide(x, relax.op.where(relax.op.equal(norm, nothing), one, norm))
    return result if wide == dtype else relax.op.astype(result, dtype)
