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


def half_in_float32(compute: Callable[[Node, Expr, Number], Expr]) -> Converter:
    """Return `compute` of input 0, in float32 where that is of half precision, as ONNX Runtime has it: differences and
    sums would lose what it keeps, sums and powers are infinite in float16, and small factors are 0."""

    def convert(node: Node) -> Expr:
        dtype = node.dtype(0)
        wide = "float32" if dtype in ("float16", "bfloat16") else dtype
        x = node.x(0) if wide == dtype else node.emit(relax.op.astype(node.x(0), wide))
        result = compute(node, x, partial(relax.const, dtype=wide))
        return result if wide == dtype else relax.op.astype(result, dtype)

    return convert
