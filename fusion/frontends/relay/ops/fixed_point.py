"""Products of integers with fractions that are integers and shifts."""

from __future__ import annotations

from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call, scalar
from fusion.frontends.relay.registry import translates


@translates("fixed_point_multiply")
def fixed_point_multiply(call: Call) -> Expr:
    """x * multiplier * 2 ** (shift - 31) of int32, the middle between two integers rounded up."""
    _need_int32(call)
    shift = call.integer("shift", 0)
    wide = relax.op.left_shift(relax.op.astype(call.x(0), "int64"), scalar(max(shift, 0), "int64"))
    product = relax.op.multiply(wide, scalar(call.integer("multiplier", 0), "int64"))
    return _scale_down(product, scalar(31 + max(-shift, 0), "int64"))


@translates("fixed_point_multiply_per_axis")
def fixed_point_multiply_per_axis(call: Call) -> Expr:
    """x * multiplier * 2 ** (left - right - 31) of int32, those three being vectors along an axis."""
    _need_int32(call)
    axes = [call.axis_of(axis) for axis in call.ints("axes")]
    extents = [extent if axis in axes else 1 for axis, extent in enumerate(call.shape(0))]
    multiplier, left, right = (relax.op.astype(relax.op.reshape(call.x(at), extents), "int64") for at in (1, 2, 3))
    wide = relax.op.astype(call.x(0), "int64")
    if call.flag("is_lshift_required", False):
        wide = relax.op.left_shift(wide, left)
    total = scalar(31, "int64")
    if call.flag("is_rshift_required", False):
        total = call.emit(relax.op.add(total, right))
    return _scale_down(relax.op.multiply(wide, multiplier), total)


def _need_int32(call: Call) -> None:
    if call.dtype(0) != "int32":
        raise Declined(f"{call.operator} of {call.dtype(0)}")


def _scale_down(product: Expr, shift: Expr) -> Expr:
    one = scalar(1, "int64")
    half = relax.op.left_shift(one, relax.op.subtract(shift, one))
    return relax.op.astype(relax.op.right_shift(relax.op.add(product, half), shift), "int32")
