"""Activations as one expression each, so that a fused kernel has one block less per step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from backends.cpu.legalize.common import FLegalize, wide
from backends.cpu.vector_math import GELU

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


def _unary(formula: Callable[[Expr], Expr], name: str) -> FLegalize:
    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: formula(wide(x(*i))).astype(x.dtype), name)

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return builder.call_te(compute, call.args[0], primfunc_name_hint=name)

    return legalize


ACTIVATIONS: dict[str, FLegalize] = {
    f"relax.nn.{formula.__name__}": _unary(formula, formula.__name__) for formula in (gelu, gelu_tanh, silu)
}
