"""Sorting and running sums. NaN is above all numbers as in NumPy and PyTorch: TVM's comparison has no order there.

Floats are sorted as integers of the same order; the values are gathered from where the indices say.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx, topi

from backends.tensorir.legalize.common import NARROW, FLegalize

Expr = Any


def order_key(x: te.Tensor) -> te.Tensor:
    """Return integers that compare as the elements of `x` do; those of other dtypes than floats are their own.

    The bits of a positive float compare as an integer, those of a negative one the other way round.
    """
    dtype = str(x.dtype)
    if not dtype.startswith(("float", "bfloat")):
        return x
    wide, bits = ("float64", "int64") if dtype == "float64" else ("float32", "int32")

    def key(*at: Expr) -> Expr:
        value = x(*at).astype(wide)
        number = tirx.reinterpret(bits, tirx.Select(value == tirx.const(0, wide), tirx.const(0, wide), value))
        ordered = tirx.Select(number < 0, tirx.bitwise_xor(number, tirx.max_value(bits)), number)
        return tirx.Select(tirx.isnan(value), tirx.max_value(bits), ordered)

    return te.compute(x.shape, key, "order_key")


def _picked(x: te.Tensor, places: te.Tensor, axis: int) -> te.Tensor:
    def element(*at: Expr) -> Expr:
        place = list(at)
        place[axis] = places(*at)
        return x(*place)

    return te.compute(places.shape, element, "picked")


def topk(x: te.Tensor, k: int, axis: int, ret_type: str, ascending: bool, dtype: str) -> Any:
    """Return the first `k` elements along `axis` in order, their places, or both."""
    places = topi.topk(order_key(x), k, axis, "indices", ascending, dtype)
    if ret_type == "indices":
        return places
    values = _picked(x, places, axis)
    return values if ret_type == "values" else [values, topi.identity(places)]


def _legalize_topk(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    (x,), attrs = call.args, call.attrs
    axis = int(attrs.axis) % len(x.ty.shape)
    arguments = int(attrs.k), axis, str(attrs.ret_type), not attrs.largest, str(attrs.dtype)
    return builder.call_te(topk, x, *arguments, primfunc_name_hint="topk")


def argsort(x: te.Tensor, axis: int, ascending: bool, dtype: str) -> te.Tensor:
    """Return the places of the elements along `axis` in order."""
    return topi.argsort(order_key(x), axis=axis, is_ascend=ascending, dtype=dtype)


def sort(x: te.Tensor, axis: int, ascending: bool) -> te.Tensor:
    """Return the elements along `axis` in order."""
    return _picked(x, argsort(x, axis, ascending, "int32"), axis)


def _legalize_sort(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    (x,), attrs = call.args, call.attrs
    axis, ascending = int(attrs.axis) % len(x.ty.shape), not attrs.descending
    if call.op.name == "relax.sort":
        return builder.call_te(sort, x, axis, ascending, primfunc_name_hint="sort")
    return builder.call_te(argsort, x, axis, ascending, str(attrs.dtype), primfunc_name_hint="argsort")


def _legalize_scan(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    (x,), attrs = call.args, call.attrs
    function = topi.cumsum if call.op.name == "relax.cumsum" else topi.cumprod
    axis = None if attrs.axis is None else int(attrs.axis)
    dtype, exclusive, name = str(attrs.dtype or x.ty.dtype), bool(attrs.exclusive), call.op.name[6:]
    if dtype not in NARROW:
        return builder.call_te(function, x, axis, dtype, exclusive, primfunc_name_hint=name)
    running = builder.emit(builder.call_te(function, x, axis, "float32", exclusive, primfunc_name_hint=name))
    return relax.op.astype(running, dtype)


SORTING: dict[str, FLegalize] = {
    "relax.topk": _legalize_topk,
    "relax.sort": _legalize_sort,
    "relax.argsort": _legalize_sort,
    "relax.cumsum": _legalize_scan,
    "relax.cumprod": _legalize_scan,
}
