"""Activations and hyperbolic functions as one expression each, so that a fused kernel has one block less per step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from backends.tensorir.intrinsics import GELU
from backends.tensorir.legalize.common import FLegalize, wide
from backends.tensorir.legalize.zeros import negative_zero
from fusion.bindings import data_of

Expr = Any


def gelu(x: Expr) -> Expr:
    """x * Phi(x) = x (1/2 + 1/2 erf(x / sqrt 2)); float32 has an operation of its own."""
    if str(x.ty.dtype) == "float32":
        return tirx.call_intrin("float32", GELU, x)
    half = tirx.const(0.5, x.ty.dtype)
    return x * (half + half * tirx.erf(x * tirx.const(math.sqrt(0.5), x.ty.dtype)))


def gelu_tanh(x: Expr) -> Expr:
    """The tanh form of gelu; 1/2 (1 + tanh u) is sigmoid(2u), which needs one exponential and no select."""
    scale = tirx.const(2 * math.sqrt(2 / math.pi), x.ty.dtype)
    return x * tirx.sigmoid(scale * x * (tirx.const(1, x.ty.dtype) + tirx.const(0.044715, x.ty.dtype) * x * x))


def silu(x: Expr) -> Expr:
    """x * sigmoid(x)."""
    return x * tirx.sigmoid(x)


def cosh(x: Expr) -> Expr:
    """(e^x + e^-x) / 2 as squares of e^(x/2), which do not overflow before the result does."""
    half = tirx.const(0.5, x.ty.dtype)
    root = tirx.exp(tirx.abs(x) * half)
    return half * root * root + half / root / root


def sinh(x: Expr) -> Expr:
    """(e^x - e^-x) / 2, and near zero, where that cancels, the series to x^7: 2e-8 off at |x| = 0.5, to x^15 in
    float64: 2e-18."""
    half = tirx.const(0.5, x.ty.dtype)
    root = tirx.exp(x * half)
    return tirx.Select(tirx.abs(x) < half, _series_of_sinh(x), half * root * root - half / root / root)


def _series_of_sinh(x: Expr) -> Expr:
    one = tirx.const(1.0, x.ty.dtype)
    square, series = x * x, one
    for count in range(7 if str(x.ty.dtype) == "float64" else 3, 0, -1):
        series = one + square * tirx.const(1 / (2 * count * (2 * count + 1)), x.ty.dtype) * series
    return x * series


def tanh(x: Expr) -> Expr:
    """In float64 sinh x / cosh x near zero, where TVM's quotient of exponentials cancels."""
    if str(x.ty.dtype) != "float64":
        return tirx.tanh(x)
    return tirx.Select(tirx.abs(x) < tirx.const(0.5, "float64"), _series_of_sinh(x) / cosh(x), tirx.tanh(x))


def atanh(x: Expr) -> Expr:
    """log((1 + x) / (1 - x)) / 2 as log1p(2 |x| / (1 - |x|)) / 2, which keeps what is near zero."""
    zero, half, one = (tirx.const(value, x.ty.dtype) for value in (0.0, 0.5, 1.0))
    magnitude = tirx.abs(x)
    found = tirx.log1p((magnitude + magnitude) / (one - magnitude)) * half
    return tirx.Select(x > zero, found, tirx.Select(x < zero, zero - found, x))


def _unary(formula: Callable[[Expr], Expr], name: str) -> FLegalize:
    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: formula(wide(x(*i))).astype(x.dtype), name)

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return builder.call_te(compute, data_of(call), primfunc_name_hint=name)

    return legalize


def _legalize_leakyrelu(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """As TVM has it, but float16 and bfloat16 in float32, which has slopes that they have not, and a slope of 0 as a
    product."""
    slope = float(call.attrs.alpha)

    def leaky_relu(x: te.Tensor) -> te.Tensor:
        def element(*index: Expr) -> Expr:
            value = wide(x(*index))
            dtype = str(value.ty.dtype)
            zero, factor = (tirx.const(constant, dtype) for constant in (0.0, slope))
            scaled = value * factor if slope else value * tirx.const(-1.0, dtype) * negative_zero(dtype)
            return tirx.Select(value > zero, value, scaled).astype(x.dtype)

        return te.compute(x.shape, element, "leaky_relu")

    return builder.call_te(leaky_relu, data_of(call), primfunc_name_hint="leaky_relu")


ACTIVATIONS: dict[str, FLegalize] = {
    **{f"relax.nn.{formula.__name__}": _unary(formula, formula.__name__) for formula in (gelu, gelu_tanh, silu)},
    **{f"relax.{formula.__name__}": _unary(formula, formula.__name__) for formula in (atanh, cosh, sinh, tanh)},
    "relax.nn.leakyrelu": _legalize_leakyrelu,
}
