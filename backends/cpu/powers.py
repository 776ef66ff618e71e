"""Powers: by some constants as products, all others as 2^(y log2 x) in float64, whose result is rounded once.

libm's `powf`, a call for each lane, takes 15 ns an element on two vCPUs of Zen 3. Error bounds are as in
vector_math.py.
"""

from __future__ import annotations

from tvm import tirx

from backends.cpu.vector_terms import Bind, Expr, bits, f32, f64, float_of_bits, horner, i32

_MOST_QUARTERS = 32
_LOG2 = (
    0.34836785636760403, 0.41120828562710154, 0.5770922966918841, 0.9617966221207286, 2.8853900818355878,
)  # fmt: skip
"""log2((1 + s) / (1 - s)) / s as a polynomial of s^2 to 0.04: a Chebyshev fit, relative error 2e-11."""
_EXP2 = (
    1.5337576700036467e-4, 1.3399860366190592e-3, 9.618519534806597e-3, 5.550328997507733e-2, 0.2402264660871106,
    0.6931472056005159, 1.00000000059202,
)  # fmt: skip
"""2^f for |f| <= 1/2: a Chebyshev fit, relative error 2e-9."""
_ROUND = 6755399441055744.0
"""1.5 * 2^52: adding it leaves the nearest integer in the low bits of a float64."""
_MANTISSA = 52
_LARGEST = 250.0
"""A float64 has 2^n to twice that, where float32 has infinity, and 0 on the other side."""


def power(bind: Bind, x: Expr, exponent: Expr) -> Expr:
    """x^exponent: of a constant that is a multiple of 1/4, 8 at most, products, quotients and square roots, x^0.75
    within 2.5 ulp; otherwise within 1 ulp. It is what C defines of zeros, infinities, NaN and negative numbers."""
    if isinstance(exponent, tirx.FloatImm | tirx.IntImm):
        quarters = abs(float(exponent.value)) * 4
        if quarters <= _MOST_QUARTERS and quarters == int(quarters):  # not of NaN
            result = _product(bind, bind(x), int(quarters))
            return f32(1.0) / result if float(exponent.value) < 0 else result
    return _general(bind, bind(x), bind(exponent))


def _product(bind: Bind, x: Expr, quarters: int) -> Expr:
    """Return x^(quarters / 4) by repeated squaring; where that is no whole power, of -0 and -inf as of 0 and inf."""
    result, square = f32(1.0), x
    whole, part = divmod(quarters, 4)
    if part:
        half = bind(tirx.abs(tirx.sqrt(x)))
        root = half if part == 2 else tirx.sqrt(half) if part == 1 else half * tirx.sqrt(half)
        result, square = tirx.Select(x == f32(float("-inf")), f32(float("inf")), root), bind(tirx.abs(x))
    while whole:
        if whole % 2:
            result = square if isinstance(result, tirx.FloatImm) else result * square
        whole //= 2
        square = bind(square * square) if whole else square
    return result


def _general(bind: Bind, x: Expr, y: Expr) -> Expr:
    magnitude = bind(tirx.abs(x))
    logarithm = bind(_log2(bind, magnitude))
    wanted = bind(_widened(y) * logarithm)
    # of 1 and -1 all powers are 1, infinite ones and NaN too; a comparison with NaN is false
    wanted = bind(tirx.Select(logarithm == f64(0.0), f64(0.0), wanted))
    wanted = bind(tirx.Select(wanted > f64(_LARGEST), f64(_LARGEST), wanted))
    wanted = bind(tirx.Select(wanted < f64(-_LARGEST), f64(-_LARGEST), wanted))
    found = bind(tirx.Cast("float32", _exp2(bind, wanted)))

    half = bind(y * f32(0.5))
    sign = bind(tirx.Select(tirx.floor(half) == half, i32(0), tirx.bitwise_and(bits(x), i32(-0x80000000))))
    by_whole = bind(float_of_bits(tirx.bitwise_or(bits(found), sign)))
    negative = tirx.And(x < f32(0.0), magnitude < f32(float("inf")))
    by_part = bind(tirx.Select(negative, f32(float("nan")), found))
    defined = bind(tirx.Select(tirx.floor(y) == y, by_whole, by_part))  # NaN is no whole number
    return tirx.Select(y == f32(0.0), f32(1.0), defined)


def _log2(bind: Bind, x: Expr) -> Expr:
    """log2 of a float32 that is not negative, in float64: of a mantissa from 2/3 to 4/3 by the series of atanh."""
    small = x < f32(1.1754943508222875e-38)
    scaled = bind(tirx.Select(small, x * f32(8388608.0), x))
    shift = tirx.Select(small, f32(-23.0), f32(0.0))
    exponent = bind(tirx.bitwise_and(bits(scaled) - i32(0x3F2AAAAB), i32(-0x00800000)))
    whole = bind(tirx.Cast("float32", exponent) * f32(1.1920928955078125e-7) + shift)
    m = bind(_widened(bind(float_of_bits(bits(scaled) - exponent))))
    s = bind((m - f64(1.0)) / (m + f64(1.0)))
    finite = bind(horner(bind(s * s), *_LOG2, constant=f64) * s + _widened(whole))
    special = bind(tirx.Select(x == f32(0.0), f32(float("-inf")), x))
    usual = tirx.And(x > f32(0.0), x < f32(float("inf")))
    return tirx.Select(usual, finite, _widened(special))


def _exp2(bind: Bind, x: Expr) -> Expr:
    """2^x in float64; the nearest integer goes to the bits of the exponent."""
    rounded = bind(x + f64(_ROUND))
    fraction = bind(x - (rounded - f64(_ROUND)))
    value = tirx.reinterpret("int64", bind(horner(fraction, *_EXP2, constant=f64)))
    raised = tirx.shift_left(tirx.reinterpret("int64", rounded), tirx.const(_MANTISSA, "int64"))
    return tirx.reinterpret("float64", bind(value + raised))


def _widened(value: Expr) -> Expr:
    return tirx.Cast("float64", value)
