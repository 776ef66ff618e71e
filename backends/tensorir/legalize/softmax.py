"""Softmax and log-softmax: row maximum, exponential once, row sum, one reciprocal per row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from backends.tensorir.legalize.common import FLegalize, drop, interleave, reduce_axes, wide, wide_dtype
from fusion.bindings import data_of

Expr = Any
Value = Callable[..., Expr]


def softmax(x: te.Tensor, axis: int) -> te.Tensor:
    """Return e^(x - max) / sum over one axis; float16 and bfloat16 are computed in float32."""
    highest = _row(x, axis, te.max, lambda *i: wide(x(*i)), "softmax_max")
    grown = te.compute(x.shape, lambda *i: tirx.exp(wide(x(*i)) - highest(*drop(i, [axis]))), "softmax_exp")
    total = _row(x, axis, te.sum, lambda *i: grown(*i), "softmax_sum")
    scale = te.compute(total.shape, lambda *i: tirx.const(1, total.dtype) / total(*i), "softmax_scale")
    return te.compute(x.shape, lambda *i: (grown(*i) * scale(*drop(i, [axis]))).astype(x.dtype), "softmax")


def log_softmax(x: te.Tensor, axis: int) -> te.Tensor:
    """Return (x - max) - log sum e^(x - max) over one axis: next to a large maximum the logarithm would be lost."""
    highest = _row(x, axis, te.max, lambda *i: wide(x(*i)), "softmax_max")
    total = _row(x, axis, te.sum, lambda *i: tirx.exp(wide(x(*i)) - highest(*drop(i, [axis]))), "softmax_sum")
    offset = te.compute(total.shape, lambda *i: tirx.log(total(*i)), "softmax_offset")

    def element(*i: Expr) -> Expr:
        kept = drop(i, [axis])
        return ((wide(x(*i)) - highest(*kept)) - offset(*kept)).astype(x.dtype)

    return te.compute(x.shape, element, "log_softmax")


def _row(x: te.Tensor, axis: int, reduction: Callable[..., Expr], value: Value, name: str) -> te.Tensor:
    (k,) = reduce_axes(x.shape, [axis])
    rank = len(x.shape)

    def term(*kept: Expr) -> Expr:
        return reduction(value(*interleave(rank, {axis: k}, kept)).astype(wide_dtype(x)), axis=k)

    return te.compute(drop(x.shape, [axis]), term, name)


def _legalize(compute: Callable[[te.Tensor, int], te.Tensor]) -> FLegalize:
    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        axis = int(call.attrs.axis) % len(data_of(call).ty.shape)
        return builder.call_te(compute, data_of(call), axis, primfunc_name_hint=compute.__name__)

    return legalize


SOFTMAX: dict[str, FLegalize] = {
    "relax.nn.softmax": _legalize(softmax),
    "relax.nn.log_softmax": _legalize(log_softmax),
}
