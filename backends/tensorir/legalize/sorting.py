"""Sorting and running sums. NaN is above all numbers as in NumPy and PyTorch: TVM's comparison has no order there.

Floats are sorted as integers of the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any

from tvm import relax, te, topi

from backends.tensorir.extents import extent_of
from backends.tensorir.legalize.common import NARROW, FLegalize
from backends.tensorir.legalize.scan_columns import scanned_columns
from backends.tensorir.legalize.sort_rows import KEYED, first_of_rows, key_of
from fusion.shapes import known_shape

Expr = Any


def order_key(x: te.Tensor) -> te.Tensor:
    """Return integers that compare as the elements of `x` do; those of other dtypes than floats are their own."""
    if not str(x.dtype).startswith(("float", "bfloat")):
        return x
    return te.compute(x.shape, lambda *at: key_of(x(*at)), "order_key")


def _first(
    builder: relax.BlockBuilder, x: relax.Expr, axis: int, count: Expr, *,
    ascending: bool, dtype: str, name: str, values: bool, places: bool, is_open: bool,
) -> list[relax.Expr]:  # fmt: skip
    """Return the first `count` elements along `axis`, sorted, or their positions as `dtype`, or both, values first."""
    wanted = {"ascending": ascending, "dtype": dtype, "values": values, "places": places}
    count = extent_of(count)
    if str(x.ty.dtype) not in KEYED:
        return _parts(builder.call_te(_first_by_tvm, x, axis, count, **wanted, primfunc_name_hint=name), builder)
    swap = list(range(len(x.ty.shape)))
    swap[axis], swap[-1] = swap[-1], swap[axis]
    is_last = axis == len(swap) - 1
    rows = x if is_last else builder.emit(builder.call_te(topi.transpose, x, swap))
    found = _parts(
        builder.call_te(first_of_rows, rows, count, **wanted, is_open=is_open, primfunc_name_hint=name), builder
    )
    return found if is_last else [builder.emit(builder.call_te(topi.transpose, each, swap)) for each in found]


def _parts(call: relax.Expr, builder: relax.BlockBuilder) -> list[relax.Expr]:
    made = builder.emit(call)
    if not isinstance(made.ty, relax.TupleType):
        return [made]
    return [builder.emit(relax.TupleGetItem(made, at)) for at in range(len(made.ty.fields))]


def _first_by_tvm(
    x: te.Tensor, axis: int, count: Expr, *, ascending: bool, dtype: str, values: bool, places: bool
) -> list[te.Tensor]:
    """Return the same of integers of 64 bits and float64, on one thread: values are gathered from where they are."""
    found = topi.topk(order_key(x), count, axis, "indices", ascending, dtype)

    def element(*at: Expr) -> Expr:
        return x(*at[:axis], found(*at), *at[axis + 1 :])

    made = [te.compute(found.shape, element, "picked")] if values else []
    return [*made, topi.identity(found)] if places else made


def _legalize_topk(builder: relax.BlockBuilder, call: relax.Call, *, is_open: bool = False) -> relax.Expr:
    """Return the first `k` elements; all where it is less than 1."""
    (x,), attrs = call.args, call.attrs
    axis, count = int(attrs.axis) % len(x.ty.shape), int(attrs.k)
    found = _first(
        builder, x, axis, count if count >= 1 else x.ty.shape[axis],
        ascending=not attrs.largest, dtype=str(attrs.dtype), name="topk",
        values=attrs.ret_type != "indices", places=attrs.ret_type != "values", is_open=is_open,
    )  # fmt: skip
    return relax.Tuple(found) if attrs.ret_type == "both" else found[0]


def _legalize_sort(builder: relax.BlockBuilder, call: relax.Call, *, is_open: bool = False) -> relax.Expr:
    (x,), attrs = call.args, call.attrs
    axis, is_sort = int(attrs.axis) % len(x.ty.shape), call.op.name == "relax.sort"
    dtype, name = "int32" if is_sort else str(attrs.dtype), call.op.name[6:]
    return _first(
        builder, x, axis, x.ty.shape[axis],
        ascending=not attrs.descending, dtype=dtype, name=name, values=is_sort, places=not is_sort, is_open=is_open,
    )[0]  # fmt: skip


def _legalize_scan(builder: relax.BlockBuilder, call: relax.Call, *, is_open: bool = False) -> relax.Expr:
    (x,), attrs = call.args, call.attrs
    axis = None if attrs.axis is None else int(attrs.axis)
    dtype, exclusive, name = str(attrs.dtype or x.ty.dtype), bool(attrs.exclusive), call.op.name[6:]
    wide = "float32" if dtype in NARROW else dtype
    split = None if is_open or axis is None else _columns(x, axis)
    if split is None:
        function = topi.cumsum if name == "cumsum" else topi.cumprod
        running = builder.call_te(function, x, axis, wide, exclusive, primfunc_name_hint=name)
    else:
        how = {"dtype": wide, "exclusive": exclusive, "multiplies": name == "cumprod"}
        rows = builder.emit(relax.op.reshape(x, split))
        made = builder.emit(builder.call_te(scanned_columns, rows, **how, primfunc_name_hint=name))
        running = relax.op.reshape(made, x.ty.shape)
    return running if wide == dtype else relax.op.astype(builder.emit(running), dtype)


def _columns(x: relax.Expr, axis: int) -> tuple[int, int, int] | None:
    """Return how many rows are before an axis, steps of it, and columns behind; None where only a call knows that, or
    there are none."""
    shape = known_shape(x)
    if not shape or 0 in shape:
        return None
    axis %= len(shape)
    columns = prod(shape[axis + 1 :])
    return (prod(shape[:axis]), shape[axis], columns) if columns > 1 else None


_BY_SIZES = {
    "relax.topk": _legalize_topk, "relax.sort": _legalize_sort, "relax.argsort": _legalize_sort,
    "relax.cumsum": _legalize_scan, "relax.cumprod": _legalize_scan,
}  # fmt: skip
SORTING: dict[str, FLegalize] = {**_BY_SIZES}


def for_open_sizes(forms: Mapping[str, FLegalize]) -> dict[str, FLegalize]:
    """Return the legalizations of a form from which one for all sizes is derived: how many elements are the first may
    depend on these."""
    ours = {name: partial(form, is_open=True) for name, form in _BY_SIZES.items() if forms.get(name) is form}
    return {**forms, **ours}
