"""Replace float32 math calls by branch-free polynomials, which LLVM vectorises.

TVM ships LLVM without a vector math library, so `tirx.exp` on 16 lanes becomes 16 calls of libm's `expf`. Every
function here is straight-line arithmetic on one value: selects in place of branches, bits moved by reinterpret.
Error bounds are in ulp of float32 against the exact value, seen over all exponents (tests/backends/cpu/test_vector_math.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.ir import Call, Op
from tvm_ffi.structural import structural_map

Expr = Any
Approximation = Callable[["_Names", Expr], Expr]


@dataclass(frozen=True)
class VectorizeMath:
    """Rewrite each float32 math call of a PrimFunc; float64, float16 and unknown calls stay.

    `y = T.exp(x)`  ->  `y = T.Let(poly(v), where={v: x})`
    """

    name: str = "vectorize_math"

    def __call__(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Return `func` with the same signature and its math calls replaced."""
        return func.with_body(structural_map(func.body, (Call, approximate)))


def approximate(call: Call) -> Expr:
    """Return the polynomial form of one scalar float32 math call, or the call itself."""
    if not isinstance(call.op, Op) or str(call.ty.dtype) != "float32":
        return call
    operation = call.op.name.rpartition(".")[2]  # TVM has both tirx.exp and prim.log2
    if operation == "pow":
        return _power(call)
    make = APPROXIMATIONS.get(operation)
    if make is None:
        return call
    names = _Names()
    return names.close(make(names, names.bind(call.args[0])))


@dataclass
class _Names:
    """Intermediate values that are used more than once, bound by `Let` so that the expression does not blow up."""

    bound: list[tuple[tirx.Var, Expr]] = field(default_factory=list)

    def bind(self, value: Expr) -> tirx.Var:
        """Return a variable that stands for `value`."""
        var = tirx.Var(f"m{len(self.bound)}", value.ty)
        self.bound.append((var, value))
        return var

    def close(self, result: Expr) -> Expr:
        """Return `result` inside the `Let`s of everything bound."""
        for var, value in reversed(self.bound):
            result = tirx.Let(var, value, result)
        return result


def f32(value: float) -> Expr:
    """Return a float32 constant."""
    return tirx.const(value, "float32")


def i32(value: int) -> Expr:
    """Return an int32 constant."""
    return tirx.const(value, "int32")


def horner(variable: Expr, *coefficients: float) -> Expr:
    """Return the polynomial with `coefficients` from the highest power down, in fused multiply-adds."""
    result = f32(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * variable + f32(coefficient)
    return result


def clamp(x: Expr, low: float, high: float) -> Expr:
    """Return x limited to [low, high]; NaN stays NaN (`tirx.min` would swallow it)."""
    below = tirx.Select(x > f32(high), f32(high), x)
    return tirx.Select(x < f32(low), f32(low), below)


def _bits(x: Expr) -> Expr:
    return tirx.reinterpret("int32", x)


def _float_of_bits(x: Expr) -> Expr:
    return tirx.reinterpret("float32", x)


# 1.5 * 2^23: adding it rounds |t| < 2^22 to the nearest integer and leaves that integer in the low mantissa bits.
_ROUND = 12582912.0
_ROUND_BITS = 0x4B400000


def _scale_by_power_of_two(names: _Names, value: Expr, rounded: Expr) -> Expr:
    """Return value * 2^n in two exact steps, so that overflow and denormals come out right; n from `rounded`'s bits."""
    n = names.bind(_bits(rounded) - i32(_ROUND_BITS))
    half = names.bind(tirx.shift_right(n, i32(1)))
    first = _float_of_bits(tirx.shift_left(half + i32(127), i32(23)))
    second = _float_of_bits(tirx.shift_left(n - half + i32(127), i32(23)))
    return value * first * second


def _exp_polynomial(names: _Names, r: Expr) -> Expr:
    """Return e^r for |r| <= ln(2)/2. Coefficients: Cephes expf."""
    tail = horner(r, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
    return tail * (r * r) + r + f32(1.0)


def exp(names: _Names, x: Expr) -> Expr:
    """e^x within 2 ulp everywhere, denormal results included. Range reduction by n ln 2 in two parts (Cody and Waite)."""
    limited = names.bind(clamp(x, -105.0, 90.0))
    rounded = names.bind(limited * f32(1.44269504088896341) + f32(_ROUND))
    n = names.bind(rounded - f32(_ROUND))
    r = names.bind(n * f32(2.12194440e-4) + (limited - n * f32(0.693359375)))
    return _scale_by_power_of_two(names, names.bind(_exp_polynomial(names, r)), rounded)


def exp2(names: _Names, x: Expr) -> Expr:
    """2^x within 2 ulp."""
    limited = names.bind(clamp(x, -151.0, 130.0))
    rounded = names.bind(limited + f32(_ROUND))
    r = names.bind((limited - (rounded - f32(_ROUND))) * f32(0.6931471805599453))
    return _scale_by_power_of_two(names, names.bind(_exp_polynomial(names, r)), rounded)


def sigmoid(names: _Names, x: Expr) -> Expr:
    """1 / (1 + e^-x) within 4 ulp; results under 1e-38 come out as 0."""
    return f32(1.0) / (f32(1.0) + exp(names, names.bind(f32(0.0) - x)))


def tanh(names: _Names, x: Expr) -> Expr:
    """tanh(x) within 2 ulp: an odd polynomial to |x| = 0.55, then 1 - 2 / (e^2|x| + 1) (N. Juffa, "tanhf", 2017)."""
    s = names.bind(x * x)
    near = horner(s, 1.57394409e-2, -5.23025580e-2, 1.33152470e-1, -3.33327681e-1) * s * x + x
    t = names.bind(tirx.abs(x))
    grown = exp(names, names.bind(t + t))
    far = _with_sign_of(x, names.bind(f32(1.0) - f32(2.0) / (grown + f32(1.0))))
    return tirx.Select(t < f32(0.55), near, far)


def _with_sign_of(x: Expr, magnitude: Expr) -> Expr:
    sign = tirx.bitwise_and(_bits(x), i32(-0x80000000))
    return _float_of_bits(tirx.bitwise_or(_bits(magnitude), sign))


def erf(names: _Names, x: Expr) -> Expr:
    """erf(x) within 2 ulp. Two minimax pieces, joined at |x| = 0.93 (N. Juffa, "erff", NVIDIA forums, 2014)."""
    t = names.bind(tirx.abs(x))
    s = names.bind(x * x)
    high = horner(t, -1.72853470e-5, 3.83197126e-4) * s + horner(t, -3.88396438e-3, 2.42546219e-2)
    for coefficient in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        high = high * t + f32(coefficient)
    far = f32(1.0) - exp(names, names.bind(high * t - t))
    # past 10 the polynomial may overflow to NaN at infinity; erf is 1 to the last bit there
    bounded = names.bind(tirx.Select(t > f32(10.0), f32(1.0), far))
    near = horner(s, -5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
    return tirx.Select(t > f32(0.927734375), _with_sign_of(x, bounded), near * x + x)


def log(names: _Names, x: Expr) -> Expr:
    """ln(x) within 1 ulp, denormals included; -inf at 0, NaN below (N. Juffa, "logf", Stack Overflow 39821367)."""
    small = x < f32(1.1754943508222875e-38)  # no Let: VectorizeLoop cannot bind a vector of booleans
    scaled = names.bind(tirx.Select(small, x * f32(8388608.0), x))
    shift = tirx.Select(small, f32(-23.0), f32(0.0))
    exponent = names.bind(tirx.bitwise_and(_bits(scaled) - i32(0x3F2AAAAB), i32(-0x00800000)))
    n = tirx.Cast("float32", exponent) * f32(1.1920928955078125e-7) + shift
    m = names.bind(_float_of_bits(_bits(scaled) - exponent) - f32(1.0))
    s = names.bind(m * m)
    even = horner(s, -0.130310059, -0.121483512, -0.166846126, -0.249996200)
    odd = horner(s, 0.140869141, 0.139814854, 0.200120345)
    r = horner_from(odd * m + even, m, 0.333331972, -0.5) * s + m
    finite = n * f32(0.693147182) + r
    special = tirx.Select(x == f32(0.0), f32(float("-inf")), tirx.Select(x < f32(0.0), f32(float("nan")), x))
    usual = tirx.And(x > f32(0.0), x < f32(float("inf")))
    return tirx.Select(usual, finite, special)


def horner_from(start: Expr, variable: Expr, *coefficients: float) -> Expr:
    """Return Horner's scheme continued from `start`."""
    for coefficient in coefficients:
        start = start * variable + f32(coefficient)
    return start


def log2(names: _Names, x: Expr) -> Expr:
    """log2(x) within 3 ulp."""
    return log(names, x) * f32(1.44269504088896341)


def log10(names: _Names, x: Expr) -> Expr:
    """log10(x) within 3 ulp."""
    return log(names, x) * f32(0.4342944819032518)


def log1p(names: _Names, x: Expr) -> Expr:
    """ln(1 + x) within 4 ulp: the rounding error of 1 + x is added back to first order."""
    u = names.bind(f32(1.0) + x)
    correction = names.bind((x - (u - f32(1.0))) / u)
    sum_ = names.bind(log(names, u))
    usual = tirx.And(u > f32(0.0), x < f32(float("inf")))
    return tirx.Select(usual, sum_ + correction, sum_)


def sin(names: _Names, x: Expr) -> Expr:
    """sin(x) within 2 ulp or 1e-7, for |x| up to 2^30; NaN at infinity."""
    return _sine(names, x, 0)


def cos(names: _Names, x: Expr) -> Expr:
    """cos(x) within 2 ulp or 1e-7, for |x| up to 2^30; NaN at infinity."""
    return _sine(names, x, 1)


def _sine(names: _Names, x: Expr, quarter: int) -> Expr:
    """Return sin(x + quarter * pi/2), reduced by multiples of pi/2 in float64, then Cephes' sinf and cosf polynomials."""
    wide = names.bind(tirx.Cast("float64", x))
    rounding = tirx.const(6755399441055744.0, "float64")  # 1.5 * 2^52, as _ROUND
    shifted = names.bind(wide * tirx.const(0.6366197723675814, "float64") + rounding)
    n = names.bind(shifted - rounding)
    low = n * tirx.const(6.123233995736766e-17, "float64")
    r = names.bind(tirx.Cast("float32", (wide - n * tirx.const(1.5707963267948966, "float64")) - low))
    quadrant = names.bind(tirx.Cast("int32", tirx.reinterpret("int64", shifted)) + i32(quarter))
    s = names.bind(r * r)
    sine = horner(s, -1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1) * s * r + r
    cosine = horner(s, 2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2) * s * s
    swapped = tirx.bitwise_and(quadrant, i32(1)) == i32(1)
    value = names.bind(tirx.Select(swapped, cosine - f32(0.5) * s + f32(1.0), sine))
    return tirx.Select(tirx.bitwise_and(quadrant, i32(2)) == i32(2), f32(0.0) - value, value)


def _power(call: Call) -> Expr:
    """Return x^c for a constant c as products, quotients and square roots; other powers stay calls."""
    base, exponent = call.args
    if not isinstance(exponent, tirx.FloatImm | tirx.IntImm):
        return call
    c = float(exponent.value)
    doubled = abs(c) * 2
    if doubled != int(doubled) or doubled > 16:
        return call
    names = _Names()
    result = _product(names, names.bind(base), int(doubled))
    return names.close(f32(1.0) / result if c < 0 else result)


def _product(names: _Names, x: Expr, halves: int) -> Expr:
    """Return x^(halves / 2) by repeated squaring."""
    result = tirx.sqrt(x) if halves % 2 else f32(1.0)
    whole, square = halves // 2, x
    while whole:
        if whole % 2:
            result = square if isinstance(result, tirx.FloatImm) else result * square
        whole //= 2
        square = names.bind(square * square) if whole else square
    return result


APPROXIMATIONS: dict[str, Approximation] = {
    make.__name__: make for make in (exp, exp2, sigmoid, tanh, erf, log, log2, log10, log1p, sin, cos)
}
