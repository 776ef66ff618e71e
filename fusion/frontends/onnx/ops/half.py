"""Converters that compute half precision in float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tvm import relax
from tvm.relax import Expr

from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import Converter

Number = Callable[[float], Expr]
"""Makes a constant of the dtype that is computed in."""


def wide_of(dtype: str) -> str:
    """Return the dtype that numbers of `dtype` are computed in."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def cast(x: Expr, source: str, target: str) -> Expr:
    """Return `x`, whose dtype is `source`, as `target`."""
    return x if source == target else relax.op.astype(x, target)


def half_in_float32(compute: Callable[[Node, Expr, Number], Expr]) -> Converter:
    """Return `compute` of input 0, in float32 where that is of half precision, as ONNX Runtime has it: differences and
    sums would lose what it keeps, sums and powers are infinite in float16, and small factors are 0."""

    def convert(node: Node) -> Expr:
        dtype = node.dtype(0)
        wide = wide_of(dtype)
        x = node.x(0) if wide == dtype else node.emit(relax.op.astype(node.x(0), wide))
        return cast(compute(node, x, partial(relax.const, dtype=wide)), wide, dtype)

    return convert
