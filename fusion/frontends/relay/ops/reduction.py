"""Reductions over axes, and running sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call, scalar
from fusion.frontends.relay.ops.dtypes import as_dtype, is_float
from fusion.frontends.relay.registry import translates

Reduce = Callable[[Expr, list[int], bool], Expr]

_REDUCTIONS: dict[str, Reduce] = {
    "sum": relax.op.sum,
    "prod": relax.op.prod,
    "max": relax.op.max,
    "min": relax.op.min,
}


@translates(*_REDUCTIONS)
def reduction(call: Call) -> Expr:
    axes, keepdims = _axes(call), call.flag("keepdims", False)
    if not axes:
        return call.x(0)
    dtype = call.dtype(0)
    # TVM has no reductions of bool, and those in half precision lose what a wider sum keeps.
    wide = {"bool": "uint8", "float16": "float32", "bfloat16": "float32"}.get(dtype, dtype)
    result = _REDUCTIONS[call.operator](as_dtype(call.x(0), wide), axes, keepdims)
    return as_dtype(call.emit(result), dtype)


@translates("all", "any")
def truth(call: Call) -> Expr:
    if call.dtype(0) != "bool":
        raise Declined(f"{call.operator} of {call.dtype(0)}")
    axes = _axes(call)
    if not axes:
        return call.x(0)
    function = relax.op.min if call.operator == "all" else relax.op.max
    number = function(relax.op.astype(call.x(0), "uint8"), axes, call.flag("keepdims", False))
    return relax.op.not_equal(number, scalar(0, "uint8"))


@translates("mean")
def mean(call: Call) -> Expr:
    """The sum over the number of elements, which for integers is rounded toward zero."""
    return _mean(call, call.x(0), 0)


@translates("variance")
def variance(call: Call) -> Expr:
    """The mean of (x - mean) ** 2, mean being operand 1; `unbiased` divides by one less than the number of elements."""
    if not is_float(call.dtype(0)):
        raise Declined(f"variance of {call.dtype(0)}")
    difference = call.emit(relax.op.subtract(call.x(0), call.x(1)))
    squares = call.emit(relax.op.multiply(difference, difference))
    return _mean(call, squares, int(call.flag("unbiased", False)))


def _mean(call: Call, x: Expr, fewer: int) -> Expr:
    axes, dtype = _axes(call), call.dtype(0)
    if not axes:
        return x
    wide, keepdims = "float32" if dtype in ("float16", "bfloat16") else dtype, call.flag("keepdims", False)
    x = call.emit(as_dtype(x, wide))
    if is_float(dtype) and not fewer:
        return as_dtype(call.emit(relax.op.mean(x, axes, keepdims)), dtype)
    total = relax.op.sum(x, axes, keepdims)
    count = math.prod(call.shape(0)[axis] for axis in axes) - fewer
    return as_dtype(call.emit(relax.op.divide(total, scalar(count, wide))), dtype)


def _axes(call: Call) -> list[int]:
    """Return the axes to reduce, ascending; none where `exclude` leaves nothing or the operand is a scalar."""
    rank = call.rank(0)
    given = {call.axis_of(axis) for axis in call.ints("axis")}
    if call.flag("exclude", False):
        if not call.has("axis"):
            raise Declined("exclude needs an axis")
        return [axis for axis in range(rank) if axis not in given]
    return sorted(given) or list(range(rank))


@translates("argmax", "argmin")
def arg_reduction(call: Call) -> Expr:
    """int32 positions; over several axes, positions in those axes laid out in one, in order."""
    axes, rank = _axes(call), call.rank(0)
    kept = [axis for axis in range(rank) if axis not in axes]
    shape = [call.shape(0)[axis] for axis in kept]
    count = math.prod(call.shape(0)[axis] for axis in axes)
    function = relax.op.argmax if call.operator == "argmax" else relax.op.argmin
    x = call.x(0)
    if len(axes) != 1:
        x = call.emit(relax.op.permute_dims(x, kept + axes)) if kept and axes else x
        x = call.emit(relax.op.reshape(x, (*shape, count)))
    along = axes[0] if len(axes) == 1 else len(kept)
    if call.flag("select_last_index", False):
        backward = function(call.emit(relax.op.flip(x, along)), along)
        found = relax.op.subtract(scalar(count - 1, "int64"), call.emit(backward))
    else:
        found = function(x, along)
    result = relax.op.astype(call.emit(found), "int32")
    if not call.flag("keepdims", False):
        return result
    return relax.op.reshape(result, [1 if axis in axes else extent for axis, extent in enumerate(call.shape(0))])


@translates("cumsum", "cumprod")
def scan(call: Call) -> Expr:
    """Running sums or products; without an axis, over the flattened operand."""
    dtype = call.dtype_attribute("dtype", call.dtype(0))
    axis = call.optional_integer("axis")
    x = as_dtype(call.x(0), dtype)
    if axis is None:
        x = call.emit(relax.op.reshape(x, (math.prod(call.shape(0)),)))
    function = relax.op.cumsum if call.operator == "cumsum" else relax.op.cumprod
    return function(x, 0 if axis is None else call.axis_of(axis), dtype, call.flag("exclusive", False))
