"""Sums and means of float16 and bfloat16 in float32, means of integers in int64; of other types as TVM has them."""

from __future__ import annotations

from math import prod

from tvm import relax, te, tirx, topi

from backends.tensorir.legalize.common import FLegalize, normalized_axes, wide_dtype
from fusion.bindings import data_of

COUNTS = "fusion.counts"
"""Annotates the block that divides by the number of elements that a mean is of: by 1 where there are none, so that it
is 0, as to ONNX Runtime. Other quotients of the same numbers are 0 / 0 there."""


def total(x: te.Tensor, axes: list[int], keepdims: bool) -> te.Tensor:
    """Return the sum over `axes`, accumulated in float32 for narrower floats."""
    return topi.sum(_cast(x, wide_dtype(x)), axes, keepdims)


def mean(x: te.Tensor, axes: list[int], keepdims: bool) -> te.Tensor:
    """Return the mean over `axes`; that of integers is rounded towards zero."""
    count = max(prod(int(x.shape[axis]) for axis in axes), 1)
    if "int" in str(x.dtype):
        whole = topi.sum(_cast(x, "int64"), axes, keepdims)
        return _cast(topi.divide(whole, tirx.const(count, "int64")), x.dtype)
    summed = total(x, axes, keepdims)
    means = te.compute(
        summed.shape, lambda *index: summed(*index) / tirx.const(count, summed.dtype), "T_divide", attrs={COUNTS: True}
    )
    return _cast(means, x.dtype)


def _sum(x: te.Tensor, axes: list[int], keepdims: bool) -> te.Tensor:
    return _cast(total(x, axes, keepdims), x.dtype)


def _cast(x: te.Tensor, dtype: str) -> te.Tensor:
    return x if x.dtype == dtype else topi.cast(x, dtype)


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    rank = len(data_of(call).ty.shape)
    axes = list(range(rank)) if call.attrs.axis is None else normalized_axes(call.attrs.axis, rank)
    compute = mean if call.op.name == "relax.mean" else _sum
    return builder.call_te(compute, data_of(call), axes, bool(call.attrs.keepdims), primfunc_name_hint=call.op.name[6:])


SUMS: dict[str, FLegalize] = {"relax.sum": _legalize, "relax.mean": _legalize}
