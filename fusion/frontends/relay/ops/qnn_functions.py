"""Functions of quantized tensors, as Relay's canonical forms of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call, scalar
from fusion.frontends.relay.ops.pooling import average_pool
from fusion.frontends.relay.ops.qnn import centred_int32, dequantized, quantized
from fusion.frontends.relay.registry import translates
from fusion.frontends.relay.requantize import (
    Scale,
    clamp,
    fixed_point_multiply,
    requantize,
    same_or_requantized,
    spread,
)
from fusion.frontends.relay.rounding import round_half_away


@translates("qnn.avg_pool2d")
def avg_pool2d(call: Call) -> Expr:
    """Data, its scale and zero point, those of the result: means of integers, rounded towards zero."""
    source, target = Scale(call.x(1), call.x(2)), Scale(call.x(3), call.x(4))
    x = same_or_requantized(call, call.x(0), source, target, "int32")
    return clamp(call, average_pool(call, x), call.dtype(0))


@translates("qnn.leaky_relu")
def leaky_relu(call: Call) -> Expr:
    """Data, its scale and zero point, those of the result: below zero times alpha, in fixed point."""
    alpha = call.number("alpha", 0.25)
    source, target = Scale(call.x(1), call.x(2)), Scale(call.x(3), call.x(4))
    moved = same_or_requantized(call, relax.op.astype(call.x(0), "int32"), source, target, "int32")
    lower = _times(call, moved, alpha)
    offset = _times(call, target.zero, 1.0 - alpha)
    below = relax.op.less(relax.op.astype(call.x(0), "int32"), source.zero)
    return clamp(call, relax.op.where(below, relax.op.add(lower, offset), moved), call.dtype(0))


def _times(call: Call, x: Expr, factor: float) -> Expr:
    """Return int32 `x` times `factor` in fixed point, halves rounded up."""
    wide = relax.op.astype(x, "int64")
    product = fixed_point_multiply(call, wide, np.array(factor), -1, "UPWARD")
    return call.emit(relax.op.astype(product, "int32"))


def _hardswish(x: Expr) -> Expr:
    """x * clip(x + 3, 0, 6) / 6"""
    return relax.op.multiply(
        x, relax.op.divide(relax.op.clip(relax.op.add(x, scalar(3.0, "float32")), 0, 6), scalar(6.0, "float32"))
    )


_UNARY: dict[str, Callable[[Expr], Expr]] = {
    "qnn.abs": relax.op.abs,
    "qnn.erf": relax.op.erf,
    "qnn.exp": relax.op.exp,
    "qnn.hardswish": _hardswish,
    "qnn.log": relax.op.log,
    "qnn.rsqrt": relax.op.rsqrt,
    "qnn.sigmoid": relax.op.sigmoid,
    "qnn.sqrt": relax.op.sqrt,
    "qnn.tanh": relax.op.tanh,
}


@translates(*_UNARY)
def unary(call: Call) -> Expr:
    """Data, its scale and zero point, those of the result: the function of the real numbers, quantized."""
    real = dequantized(call, call.x(0), Scale(call.x(1), call.x(2)))
    result = call.emit(_UNARY[call.operator](real))
    return quantized(call, result, Scale(call.x(3), call.x(4)), call.dtype(0))


@translates("qnn.softmax")
def softmax(call: Call) -> Expr:
    """Data, its scale and zero point, those of the result: exponentials to base 2 by shifts of integers [1].

    [1] Lin et al., I-ViT: Integer-only Quantization for Efficient Vision Transformer Inference, 2022, algorithm 1.
    """
    scale = float(call.const(1).item())
    if not 0 < scale <= 1:
        raise Declined(f"a scale of {scale}")
    axis, unit = call.axis("axis", -1), scalar(int(np.floor(1.0 / scale + 0.5)), "int32")
    centred = call.emit(centred_int32(call.x(0), call.x(2), -1))
    x = call.emit(relax.op.subtract(centred, relax.op.max(centred, [axis], True)))
    powers = call.emit(
        relax.op.subtract(relax.op.add(x, _shifted(x, 1)), _shifted(x, 4))  # x * log2(e), which is about 1.0111b
    )
    whole = call.emit(relax.op.minimum(relax.op.floor_divide(relax.op.negative(powers), unit), scalar(20, "int32")))
    rest = relax.op.add(powers, relax.op.multiply(whole, unit))
    mantissa = relax.op.add(_shifted(rest, 1), unit)
    exponentials = call.emit(
        relax.op.left_shift(mantissa, relax.op.subtract(relax.op.max(whole, [axis], True), whole))
    )
    factor = relax.op.floor_divide(scalar(1 << 30, "int32"), relax.op.sum(exponentials, [axis], True))
    result = call.emit(_shifted(relax.op.multiply(factor, exponentials), 23))
    source = Scale(scalar(1.0 / 128, "float32"), scalar(0, "int32"))
    return requantize(call, result, source, Scale(call.x(3), call.x(4)), "int8")


def _shifted(x: Expr, bits: int) -> Expr:
    return relax.op.right_shift(x, scalar(bits, "int32"))


_SIMULATED = {1: "int8", 2: "uint8", 3: "int32"}
"""The codes of dtypes that operand 1 of simulated operators holds; 0 leaves the data as they are."""


@translates("qnn.simulated_quantize")
def simulated_quantize(call: Call) -> Expr:
    """Data, code of a dtype, scale, zero point -> what `qnn.quantize` gives, as floats."""
    dtype = _simulated_dtype(call)
    if dtype is None:
        return call.x(0)
    x, axis = call.x(0), call.integer("axis", -1)
    rounded = round_half_away(call, call.emit(relax.op.divide(x, spread(call.x(2), x, axis))))
    moved = relax.op.add(rounded, relax.op.astype(spread(call.x(3), x, axis), call.dtype(0)))
    limits = np.iinfo(dtype)
    return relax.op.clip(moved, float(limits.min), float(limits.max))


@translates("qnn.simulated_dequantize")
def simulated_dequantize(call: Call) -> Expr:
    """Data, code of a dtype, scale, zero point -> what `qnn.dequantize` gives, of floats."""
    if _simulated_dtype(call) is None:
        return call.x(0)
    x, axis = call.x(0), call.integer("axis", -1)
    shifted = relax.op.subtract(x, relax.op.astype(spread(call.x(3), x, axis), call.dtype(0)))
    return relax.op.multiply(shifted, spread(call.x(2), x, axis))


def _simulated_dtype(call: Call) -> str | None:
    code = int(call.const(1).item())
    if code not in (0, *_SIMULATED):
        raise Declined(f"there is no dtype of code {code}")
    return _SIMULATED.get(code)
