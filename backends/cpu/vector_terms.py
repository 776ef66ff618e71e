"""The terms that approximations of functions are made of: constants, polynomials, limits, and the bits of a float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

Expr = Any
Bind = Callable[[Expr], Expr]
"""Returns a cheap expression that stands for the given one."""

# 1.5 * 2^23: adding it rounds |t| < 2^22 to the nearest integer and leaves that integer in the low mantissa bits.
ROUND = 12582912.0
ROUND_BITS = 0x4B400000


LEAST_DISTANCE = -87.336540
"""Just above the logarithm of the least normal number of float32, 2^-126."""
EXP_BETWEEN_ROUNDED = (1.3814539580e-3, 8.3687454461e-3, 4.1668388993e-2, 1.6666521132e-1, 4.9999994040e-1, 1.0, 1.0)
"""The coefficients of the polynomial that is e^r for |r| <= ln(2)/2 within 3e-9."""


def f32(value: float) -> Expr:
    """Return a float32 constant."""
    return tirx.const(value, "float32")


def i32(value: int) -> Expr:
    """Return an int32 constant."""
    return tirx.const(value, "int32")


def f64(value: float) -> Expr:
    """Return a float64 constant."""
    return tirx.const(value, "float64")


def horner(variable: Expr, *coefficients: float, constant: Callable[[float], Expr] = f32) -> Expr:
    """Return the polynomial with `coefficients` from the highest power down, in fused multiply-adds of the dtype of
    what `constant` makes."""
    result = constant(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * variable + constant(coefficient)
    return result


def nearest(x: Expr) -> Expr:
    """Return the nearest whole number, the even one of two, in x's dtype: TVM's `nearbyint` has no form on vectors."""
    return tirx.call_llvm_pure_intrin(x.ty.dtype, "llvm.nearbyint", x)


def rounded(x: Expr) -> Expr:
    """Return x as it is in its dtype: LLVM makes no multiply-add of a product and what it is added to."""
    return tirx.call_llvm_pure_intrin(x.ty.dtype, "llvm.arithmetic.fence", x)


def clamp(x: Expr, low: float, high: float) -> Expr:
    """Return x limited to [low, high], one instruction for each; NaN stays NaN (`tirx.min` would swallow it)."""
    below = tirx.Select(x > f32(high), f32(high), x)
    return tirx.Select(below < f32(low), f32(low), below)


def bits(x: Expr) -> Expr:
    """Return the int32 with the bits of a float32."""
    return tirx.reinterpret("int32", x)


def float_of_bits(x: Expr) -> Expr:
    """Return the float32 with the bits of an int32."""
    return tirx.reinterpret("float32", x)


def with_sign_of(x: Expr, magnitude: Expr) -> Expr:
    """Return a float32 that is not negative with the sign of x."""
    sign = tirx.bitwise_and(bits(x), i32(-0x80000000))
    return float_of_bits(tirx.bitwise_or(bits(magnitude), sign))


def erf_in_two(x: Expr, square: Expr, magnitude: Expr, far: Expr) -> Expr:
    """Return erf(x): an odd polynomial to |x| = 0.93 (N. Juffa, "erff", NVIDIA forums, 2014), then `far` with the sign
    of x."""
    near = horner(square, -5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
    return tirx.Select(magnitude > f32(0.927734375), with_sign_of(x, far), near * x + x)
