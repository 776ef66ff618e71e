"""Functions as machines compute them best that take several instructions to scale by a power of two.

That is all but those with AVX-512. Fewer multiply-adds are what counts: their units are busy most of the time. Error
bounds are as in vector_math.py.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from backends.cpu.vector_terms import (
    EXP_BETWEEN_ROUNDED,
    LEAST_DISTANCE,
    ROUND,
    Bind,
    Expr,
    bits,
    clamp,
    erf_in_two,
    f32,
    float_of_bits,
    horner,
    i32,
    with_sign_of,
)  # fmt: skip

_ROUND_EVEN = 25165824.0 + 2 * 127
"""1.5 * 2^24 + 2 * 127: adding it rounds |t| < 2^23 to the nearest even number 2 m and leaves 127 + m in the low
mantissa bits, as which the exponent of 2^m is stored."""

_ROUND_WEIGHT = ROUND + 126
"""The same for the nearest whole number n, and 126 + n, which is 0 for the least weight."""


def exp(bind: Bind, x: Expr) -> Expr:
    """e^x within 2 ulp everywhere, denormal results included; range reduction by Cody and Waite."""
    limited = bind(clamp(x, -176.0, 90.0))
    rounded = bind(limited * f32(1.44269504088896341) + f32(_ROUND_EVEN))
    n = bind(rounded - f32(_ROUND_EVEN))
    r = bind(n * f32(2.12194440e-4) + (limited - n * f32(0.693359375)))
    # |r| <= ln 2: a minimax fit of the relative error, 1.5e-8; the last two coefficients are 1
    value = horner(
        r, 1.96220833e-4, 1.41059945e-3, 8.33604112e-3, 4.16611806e-2, 1.66666150e-1, 5.00000358e-1, 1.0, 1.0
    )
    return _scaled_twice(bind, value, rounded)


def exp2(bind: Bind, x: Expr) -> Expr:
    """2^x within 2 ulp."""
    limited = bind(clamp(x, -254.0, 130.0))
    rounded = bind(limited + f32(_ROUND_EVEN))
    f = bind(limited - (rounded - f32(_ROUND_EVEN)))
    # |f| <= 1, as above
    value = horner(
        f, 1.49169628e-5, 1.56452923e-4, 1.33417198e-3, 9.61684436e-3, 5.55036590e-2, 2.40226686e-1, 6.93147242e-1, 1.0
    )
    return _scaled_twice(bind, value, rounded)


def _scaled_twice(bind: Bind, value: Expr, rounded: Expr) -> Expr:
    """Return value * 2^m * 2^m, of which only the second product rounds: overflow and denormals come out right.

    As n = 2 m is even, one factor serves for both, at one multiply-add more in the polynomial. Where m is -127, as
    for the least arguments after the limit, the factor is 0: what is masked takes no assist, as scaling down to nothing
    does on Intel's cores.
    """
    factor = bind(float_of_bits(tirx.shift_left(bits(rounded), i32(23))))
    return value * factor * factor


def softmax_weight(bind: Bind, x: Expr) -> Expr:
    """e^x for x <= 0: 0 below 2^-125.5, NaN of NaN. The error is 2 ulp and 1/20 of what half an ulp of x makes.

    So one constant for ln 2 is enough, where Cody and Waite's two serve an x that is exact: that of a softmax is a
    difference, rounded already. The polynomial has the factor 2 and the bits that of 2^(n - 1), so that n = -126, from
    which on results would be subnormal, makes the factor 0.
    """
    limited = bind(tirx.Select(x < f32(LEAST_DISTANCE), f32(LEAST_DISTANCE), x))
    rounded = bind(limited * f32(1.44269504088896341) + f32(_ROUND_WEIGHT))
    r = bind((rounded - f32(_ROUND_WEIGHT)) * f32(-0.6931471805599453) + limited)
    doubled = horner(r, *(2 * coefficient for coefficient in EXP_BETWEEN_ROUNDED))
    return doubled * float_of_bits(tirx.shift_left(bits(rounded), i32(23)))


def tanh(bind: Bind, x: Expr) -> Expr:
    """tanh(x) within 2 ulp: an odd polynomial to |x| = 0.77, then 1 - 1 / p(|x|)^2.

    p is a fit to sqrt((e^2t + 1) / 2) for the least absolute error of tanh, and grows to infinity.
    """
    t = bind(tirx.abs(x))
    s = bind(t * t)
    near = horner(s, -4.61671781e-3, 1.94702558e-2, -5.33056818e-2, 1.33250922e-1, -3.33329946e-1) * s * t + t
    root = horner(
        t, 2.66732677e-5, -3.57269135e-4, 2.90977675e-3, -1.15547255e-2, 4.41539139e-2, -5.12986891e-2, 2.24096015e-1,
        3.24708939e-1, 5.18219054e-1, 9.97150958e-1,
    )  # fmt: skip
    inverse = bind(f32(1.0) / root)
    far = f32(1.0) - inverse * inverse
    return with_sign_of(x, bind(tirx.Select(t < f32(0.77), near, far)))


def erf(bind: Bind, x: Expr) -> Expr:
    """erf(x) within 2 ulp: `erf_in_two`, far from 0 as 1 - 1 / p(|x|)^4.

    p is a fit to erfc(t)^(-1/4) for the least absolute error of erf, and grows to infinity. The form is that of
    Abramowitz and Stegun, 7.1.28, whose p^16 has 16 times the rounding error of p.
    """
    t = bind(tirx.abs(x))
    s = bind(x * x)
    root = bind(horner(
        t, 2.49931705e-3, -2.97939088e-2, 1.67735994e-1, -5.48574448e-1, 1.17529953, -1.62199116, 1.60763454,
        -7.13269532e-1, 5.95846415e-1, 9.52495754e-1,
    ))  # fmt: skip
    square = bind(root * root)
    far = bind(f32(1.0) - f32(1.0) / (square * square))
    return erf_in_two(x, s, t, far)


WITHOUT_SCALEF: dict[str, Callable[[Bind, Expr], Expr]] = {
    make.__name__: make for make in (exp, exp2, softmax_weight, tanh, erf)
}
