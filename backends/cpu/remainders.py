"""Remainders of float32, in float64, whose fused multiply-adds are exact here; libm's `fmod` is a call for each lane.

A quotient is estimated in 53 bits and rounded to a whole number q; r - q y has no more bits than a float64 holds: it is
a multiple of what both are multiples of, and 2^51 times as small as r, until it is below y. Quotients of float32 have
up to 277 bits.
"""

from __future__ import annotations

from math import ceil, frexp, isfinite

from tvm import tirx

from backends.cpu.vector_terms import Bind, Expr, bits, f64, float_of_bits, i32, nearest

_BITS = 51
"""That a step takes from a quotient: its estimate is off by 2^-53 for the reciprocal and for the product each, and
rounding by as much of what is smaller."""
_LAST_BITS = 50
"""A quotient that is smaller is rounded to less than 1 of what it is."""
_LARGEST = 128
"""Float32 is smaller than two to this power."""
_LEAST = -149


def fmod(bind: Bind, x: Expr, y: Expr) -> Expr:
    """The remainder of x / y towards 0, exactly, with the sign of x; NaN of an infinite x, and of a y of 0."""
    numerator, divisor = (bind(tirx.Cast("float64", bind(tirx.abs(value)))) for value in (x, y))
    # x is its own remainder by infinity, and by what no float32 reaches
    divisor = bind(tirx.Select(divisor > f64(2.0**_LARGEST), f64(2.0**_LARGEST), divisor))
    reciprocal = bind(f64(1.0) / divisor)
    rest = numerator
    for _ in range(_steps(y)):
        quotient = bind(nearest(bind(rest * reciprocal)))
        rest = bind(tirx.call_llvm_pure_intrin("float64", "llvm.fma", f64(0.0) - quotient, divisor, rest))
    positive = bind(tirx.Cast("float32", bind(tirx.Select(rest < f64(0.0), rest + divisor, rest))))
    sign = tirx.bitwise_and(bits(x), i32(-0x80000000))
    return float_of_bits(tirx.bitwise_or(bits(positive), sign))


def _steps(y: Expr) -> int:
    """Return how many steps the largest quotient by y takes."""
    least = _LEAST
    if isinstance(y, tirx.FloatImm) and isfinite(y.value) and y.value:
        least = frexp(y.value)[1] - 1
    return 1 + max(0, ceil((_LARGEST - least - _LAST_BITS) / _BITS))
