"""Changes of scale, sums and products of quantized tensors, as Relay's canonical forms of them: integers in int32."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.relay.call import Call, dtype_of, scalar, shape_of
from fusion.frontends.relay.layouts import relayout
from fusion.frontends.relay.ops.convolution import convolve, deconvolve
from fusion.frontends.relay.ops.linear import product, times_transposed
from fusion.frontends.relay.registry import translates
from fusion.frontends.relay.requantize import (
    Rounding,
    Scale,
    clamp,
    is_zero,
    requantize,
    same_or_requantized,
    saturate,
    spread,
)
from fusion.frontends.relay.rounding import round_half_away


@translates("qnn.quantize")
def quantize(call: Call) -> Expr:
    """Data, scale, zero point -> round(x / scale) + zero, saturated; halves are rounded away from zero."""
    return quantized(call, call.x(0), Scale(call.x(1), call.x(2)), call.dtype_attribute("out_dtype", "int8"))


def quantized(call: Call, x: Expr, target: Scale, dtype: str) -> Expr:
    """Return float `x` quantized along the axis that the attributes of `call` name."""
    axis = call.integer("axis", -1)
    rounded = round_half_away(call, call.emit(relax.op.divide(x, spread(target.scale, x, axis))))
    if not is_zero(target.zero):
        rounded = relax.op.add(rounded, relax.op.astype(spread(target.zero, x, axis), dtype_of(x)))
    return saturate(call, rounded, dtype)


@translates("qnn.dequantize")
def dequantize(call: Call) -> Expr:
    """Data, scale, zero point -> scale * (q - zero)"""
    real = dequantized(call, call.x(0), Scale(call.x(1), call.x(2)))
    wanted = call.dtype_attribute("out_dtype", "float32")
    return real if wanted == "float32" else relax.op.astype(real, wanted)


def dequantized(call: Call, x: Expr, source: Scale) -> Expr:
    """Return the float32 that integers `x` stand for, along the axis that the attributes of `call` name."""
    axis = call.integer("axis", -1)
    shifted = relax.op.subtract(relax.op.astype(x, "int32"), spread(source.zero, x, axis))
    return call.emit(relax.op.multiply(relax.op.astype(shifted, "float32"), spread(source.scale, x, axis)))


@translates("qnn.requantize")
def requantize_call(call: Call) -> Expr:
    """Data, its scale and zero point, those of the result."""
    mode, compute = call.text("rounding", "None"), call.text("compute_dtype", "None")
    default = Rounding()
    how = Rounding(default.mode if mode == "None" else mode, default.compute_dtype if compute == "None" else compute)
    source, target = Scale(call.x(1), call.x(2)), Scale(call.x(3), call.x(4))
    return requantize(
        call,
        call.x(0),
        source=source,
        target=target,
        dtype=call.dtype_attribute("out_dtype", "int8"),
        axis=call.integer("axis", -1),
        rounding=how,
    )


@translates("qnn.add", "qnn.subtract")
def add(call: Call) -> Expr:
    """Both operands on the scale of the result; of two zero points one is taken off, or added."""
    target = Scale(call.x(6), call.x(7))
    a, b = (
        same_or_requantized(
            call,
            call.x(i),
            source=Scale(call.x(2 + 2 * i), call.x(3 + 2 * i)),
            target=target,
            dtype="int32",
            axis=call.integer(axis, -1),
        )
        for i, axis in ((0, "lhs_axis"), (1, "rhs_axis"))
    )
    sums = call.operator == "qnn.add"
    result = relax.op.add(a, b) if sums else relax.op.subtract(a, b)
    if not is_zero(target.zero):
        result = relax.op.subtract(result, target.zero) if sums else relax.op.add(result, target.zero)
    return clamp(call, result, call.dtype(0))


@translates("qnn.mul")
def mul(call: Call) -> Expr:
    """The product of both without their zero points, whose scale is the product of theirs."""
    axis = call.integer("lhs_axis", -1)
    vector = any(np.prod(call.shape(index)) > 1 for index in (2, 4))
    if vector and axis != call.integer("rhs_axis", -1):
        raise Declined("scales along different axes")
    centred = (centred_int32(call.x(i), call.x(3 + 2 * i), axis) for i in (0, 1))
    result = call.emit(relax.op.multiply(*centred))
    if call.is_const(2) and call.is_const(4):
        scale = constant(call.const(2).astype(np.float32) * call.const(4).astype(np.float32))
    else:
        scale = call.emit(relax.op.multiply(call.x(2), call.x(4)))
    source = Scale(scale, scalar(0, "int32"))
    return requantize(call, result, source=source, target=Scale(call.x(6), call.x(7)), dtype=call.dtype(0), axis=axis)


def centred_int32(x: Expr, zero: Expr, axis: int) -> Expr:
    """Return integers `x` without their zero point, in int32."""
    wide = relax.op.astype(x, "int32")
    return wide if is_zero(zero) else relax.op.subtract(wide, spread(zero, x, axis))


@translates("qnn.concatenate")
def concatenate(call: Call) -> Expr:
    """A tuple of tensors, of their scales, of their zero points, the scale and zero point of the result."""
    target = Scale(call.x(3), call.x(4))
    parts = [
        same_or_requantized(call, x, Scale(scale, zero), target, dtype_of(x))
        for x, scale, zero in zip(call.fields(0), call.fields(1), call.fields(2), strict=True)
    ]
    return relax.op.concat(parts, call.axis_of(call.integer("axis", 0), len(shape_of(parts[0]))))


@translates("qnn.conv2d", "qnn.conv2d_transpose")
def conv2d(call: Call) -> Expr:
    """Data, weight, their zero points, their scales: exact sums of products, whose scale is the product of theirs."""
    transposed = call.operator.endswith("transpose")
    layout = call.text("kernel_layout", "IOHW" if transposed else "OIHW")
    data = call.emit(centred_int32(call.x(0), call.x(2), -1))
    weight = call.emit(centred_int32(call.x(1), call.x(3), layout.index("O")))
    return (deconvolve if transposed else convolve)(call, data, weight)


@translates("qnn.dense")
def dense(call: Call) -> Expr:
    """Data, weight, their zero points, their scales: the exact product."""
    data, weight = centred_int32(call.x(0), call.x(2), -1), centred_int32(call.x(1), call.x(3), 0)
    return times_transposed(call, data, weight)


@translates("qnn.contrib_dense_pack")
def dense_pack(call: Call) -> Expr:
    weight = relayout(call, call.x(1), call.text("weight_layout", "NC"), "NC")
    return times_transposed(call, centred_int32(call.x(0), call.x(2), -1), centred_int32(weight, call.x(3), 0))


@translates("qnn.batch_matmul")
def batch_matmul(call: Call) -> Expr:
    """[b, m, k] @ [b, n, k]'"""
    a, b = (centred_int32(call.x(i), call.x(2 + i), -1) for i in (0, 1))
    return product(call, a, relax.op.permute_dims(b, [0, 2, 1]))
