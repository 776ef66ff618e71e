"""Decompositions of elementwise operators, and of products with a factor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _scaled(value: Any, factor: Any) -> Any:
    return value if factor == 1 else value * factor


def _addmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return torch.add(_scaled(torch.mm(left, right), alpha), _scaled(bias, beta))


def _baddbmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return torch.add(_scaled(torch.bmm(left, right), alpha), _scaled(bias, beta))


def _addbmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return torch.add(_scaled(torch.bmm(left, right).sum(0), alpha), _scaled(bias, beta))


def _addmv(bias: Tensor, matrix: Tensor, vector: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return torch.add(_scaled(torch.mm(matrix, vector[:, None])[:, 0], alpha), _scaled(bias, beta))


def _trilinear(
    first: Tensor, second: Tensor, third: Tensor, expand1: list[int], expand2: list[int], expand3: list[int],
    sumdim: list[int], unroll_dim: int = 1,
) -> Tensor:  # fmt: skip
    operands = []
    for value, dims in ((first, expand1), (second, expand2), (third, expand3)):
        for dim in sorted(dims):
            value = value.unsqueeze(dim)
        operands.append(value)
    return (operands[0] * operands[1] * operands[2]).sum(sumdim)


def _pow(base: Tensor, exponent: Tensor) -> Any:
    dtype = torch.result_type(base, exponent)
    if dtype in (torch.float32, torch.float64):
        return NotImplemented
    # Integers are exact up to 2**53.
    return torch.pow(base.double(), exponent.double()).to(dtype)


def _pow_number(base: Tensor, exponent: Any) -> Any:
    """TVM has no power of 16 bits."""
    if base.dtype not in (torch.bfloat16, torch.float16):
        return NotImplemented
    return torch.pow(base.float(), exponent).to(base.dtype)


def _fmod(x: Tensor, y: Any) -> Any:
    """It is exact in any wider dtype; TVM has none of bfloat16."""
    dtype = torch.result_type(x, y)
    if dtype != torch.bfloat16:
        return NotImplemented
    return torch.fmod(x.to(dtype).float(), _rounded(y, x, dtype).float()).to(dtype)


def _remainder(x: Tensor, y: Any) -> Any:
    """As torch computes it. TVM rounds the quotient down: large ones leave nothing that is right."""
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point:
        return NotImplemented
    divisor = _rounded(y, x, dtype) if dtype in (torch.bfloat16, torch.float16) else y
    rest = torch.fmod(x, divisor)
    return torch.where((rest != 0) & ((rest < 0) != (divisor < 0)), rest + divisor, rest)


def _remainder_of_number(x: Any, y: Tensor) -> Tensor:
    return torch.remainder(torch.full_like(y, x, dtype=torch.result_type(x, y)), y)


def _rounded(value: Any, like: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor, or a number in the shape of another one, in a dtype."""
    return (value if isinstance(value, Tensor) else torch.full_like(like, value)).to(dtype)


def _exp2(x: Tensor) -> Tensor:
    return torch.pow(2.0, _floating(x))


def _ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    return x * torch.pow(2.0, _floating(exponent))


def _floating(x: Tensor) -> Tensor:
    return x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())


def _signbit(x: Tensor) -> Tensor:
    if not x.dtype.is_floating_point:
        return x < 0
    return (x < 0) | ((x == 0) & (x.reciprocal() < 0))


def _copysign(x: Tensor, sign: Any) -> Tensor:
    signed = sign if isinstance(sign, Tensor) else torch.full_like(x, sign)
    size = _floating(x).abs()
    return torch.where(torch.signbit(signed), -size, size)


def _fmax(left: Tensor, right: Tensor) -> Tensor:
    return torch.where((left >= right) | (right != right), left, right)


def _fmin(left: Tensor, right: Tensor) -> Tensor:
    return torch.where((left <= right) | (right != right), left, right)


def _hypot(left: Tensor, right: Tensor) -> Tensor:
    a, b = left.abs(), right.abs()
    first = (a >= b) | (a != a)
    large, small = torch.where(first, a, b), torch.where(first, b, a)
    ratio = torch.where(large == 0, torch.zeros_like(large), small / large)
    return torch.where(large == math.inf, large, large * torch.sqrt(1 + ratio * ratio))


def _isfinite(x: Tensor) -> Tensor:
    return x.abs() < math.inf if x.dtype.is_floating_point else torch.ones_like(x, dtype=torch.bool)


def _sinh(x: Tensor) -> Tensor:
    # With expm1, as the difference of two exponentials loses all of a small x; halves, as one alone overflows late.
    x = _floating(x)
    e = torch.expm1(x.abs())
    size = torch.where(x.abs() < 1, (e + e / (e + 1)) / 2, _half_exp(x.abs()) - _half_exp(-x.abs()))
    return torch.where(x.abs() < 1e-2, x + x * x * x / 6, torch.where(x < 0, -size, size))


def _cosh(x: Tensor) -> Tensor:
    return _half_exp(_floating(x)) + _half_exp(-_floating(x))


def _half_exp(x: Tensor) -> Tensor:
    half = torch.exp(x / 2)
    return half / 2 * half


# Chebyshev coefficients of erfc(x) exp(x^2) / t in t = 2 / (2 + x): Press et al., Numerical Recipes, 3rd ed., 6.2.2.
_ERFC = (
    -1.3026537197817094, 6.4196979235649026e-1, 1.9476473204185836e-2, -9.561514786808631e-3, -9.46595344482036e-4,
    3.66839497852761e-4, 4.2523324806907e-5, -2.0278578112534e-5, -1.624290004647e-6, 1.303655835580e-6,
    1.5626441722e-8, -8.5238095915e-8, 6.529054439e-9, 5.059343495e-9, -9.91364156e-10, -2.27365122e-10,
    9.6467911e-11, 2.394038e-12, -6.886027e-12, 8.94487e-13, 3.13092e-13, -1.12708e-13, 3.81e-16, 7.106e-15,
    -1.523e-15, -9.4e-17, 1.21e-16, -2.8e-17,
)  # fmt: skip


def _in_float64(rule: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Compute in float64, as the sums of the series cancel; the result has the operand's dtype."""

    def computed(x: Tensor) -> Tensor:
        return rule(x.double()).to(_floating(x).dtype)

    return computed


def _erfc(x: Tensor) -> Tensor:
    size = x.abs()
    t = 2 / (2 + size)
    y = 4 * t - 2
    d, dd = torch.zeros_like(x), torch.zeros_like(x)
    for coefficient in reversed(_ERFC[1:]):
        d, dd = y * d - dd + coefficient, d
    result = t * torch.exp(-size * size + 0.5 * (_ERFC[0] + y * d) - dd)
    return torch.where(x < 0, 2 - result, result)


# Lanczos's approximation of the gamma function with g = 7 and 9 terms (P. Godfrey 2001).
_LANCZOS = (
    676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
    -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


def _lgamma(x: Tensor) -> Tensor:
    below = x < 0.5
    z = torch.where(below, 1 - x, x) - 1
    series = torch.full_like(z, 0.99999999999980993)
    for index, coefficient in enumerate(_LANCZOS, 1):
        series = series + coefficient / (z + index)
    t = z + 7.5
    value = 0.5 * math.log(2 * math.pi) + (z + 0.5) * torch.log(t) - t + torch.log(series)
    reflected = math.log(math.pi) - torch.log(torch.sin(math.pi * (x - torch.floor(x))).abs()) - value
    pole = (x <= 0) & (x == torch.floor(x))
    return torch.where(pole | (x.abs() == math.inf), math.inf, torch.where(below, reflected, value))


# Of the asymptotic series of digamma: B(2k) / 2k.
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760)


def _digamma(x: Tensor) -> Tensor:
    below = x < 0.5
    y = torch.where(below, 1 - x, x)
    shift = torch.zeros_like(y)
    for step in range(8):
        shift = shift + 1 / (y + step)
    z = y + 8
    square = 1 / (z * z)
    series = torch.zeros_like(z)
    for coefficient in reversed(_DIGAMMA):
        series = (series + coefficient) * square
    value = torch.log(z) - 0.5 / z - series - shift
    fraction = x - torch.floor(x)
    reflected = value - math.pi / torch.tan(math.pi * fraction)
    pole = torch.where(x == 0, -math.inf * torch.copysign(torch.ones_like(x), x), math.nan)
    found = torch.where(below, torch.where(fraction == 0, pole, reflected), value)
    return torch.where(x == math.inf, x, found)


# Rational approximations of the inverse error function, in the middle and at the ends: those of torch itself.
_MIDDLE = (-0.140543331, 0.914624893, -1.645349621, 0.886226899)
_BELOW_MIDDLE = (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0)
_ENDS = (1.641345311, 3.429567803, -1.624906493, -1.970840454)
_BELOW_ENDS = (1.637067800, 3.543889200, 1.0)


def _polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    value = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def _erfinv(y: Tensor) -> Tensor:
    """An approximation, and two of Newton's steps."""
    size = y.abs()
    middle, end = size * size, torch.sqrt(-torch.log((1 - size) / 2))
    x = torch.where(
        size <= 0.7,
        size * _polynomial(_MIDDLE, middle) / _polynomial(_BELOW_MIDDLE, middle),
        _polynomial(_ENDS, end) / _polynomial(_BELOW_ENDS, end),
    )
    for _ in range(2):
        x = x - (torch.erf(x) - size) / (2 / math.sqrt(math.pi) * torch.exp(-x * x))
    found = torch.where(size < 1, x, torch.where(size == 1, math.inf, math.nan))
    return torch.where(y < 0, -found, torch.where(size == 0, y, found))


def _rrelu(
    x: Tensor, noise: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> Any:
    return NotImplemented if training else (torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise)


def _logaddexp(left: Tensor, right: Tensor) -> Tensor:
    first = (left >= right) | (left != left)
    large, small = torch.where(first, left, right), torch.where(first, right, left)
    # Equal infinities have no difference.
    return torch.where(large == small, large + math.log(2), large + torch.log1p(torch.exp(small - large)))


RULES = {
    aten.addmm.default: _addmm,
    aten.baddbmm.default: _baddbmm,
    aten.addbmm.default: _addbmm,
    aten.addmv.default: _addmv,
    aten._trilinear.default: _trilinear,
    aten.pow.Tensor_Tensor: _pow,
    aten.pow.Tensor_Scalar: _pow_number,
    aten.fmod.Tensor: _fmod,
    aten.fmod.Scalar: _fmod,
    aten.remainder.Tensor: _remainder,
    aten.remainder.Scalar: _remainder,
    aten.remainder.Scalar_Tensor: _remainder_of_number,
    aten.exp2.default: _exp2,
    aten.ldexp.Tensor: _ldexp,
    aten.signbit.default: _signbit,
    aten.copysign.Tensor: _copysign,
    aten.copysign.Scalar: _copysign,
    aten.fmax.default: _fmax,
    aten.fmin.default: _fmin,
    aten.hypot.default: _hypot,
    aten.isfinite.default: _isfinite,
    aten.sinh.default: _sinh,
    aten.cosh.default: _cosh,
    aten.logaddexp.default: _logaddexp,
    aten.erfc.default: _in_float64(_erfc),
    aten.lgamma.default: _in_float64(_lgamma),
    aten.digamma.default: _in_float64(_digamma),
    aten.erfinv.default: _in_float64(_erfinv),
    aten.rrelu_with_noise_functional.default: _rrelu,
}
