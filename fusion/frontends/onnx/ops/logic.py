"""Comparisons, boolean and bitwise operators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import converts

_SAME: dict[str, Callable[..., Expr]] = {
    "Equal": relax.op.equal,
    "Less": relax.op.less,
    "LessOrEqual": relax.op.less_equal,
    "Greater": relax.op.greater,
    "GreaterOrEqual": relax.op.greater_equal,
    "And": relax.op.logical_and,
    "Or": relax.op.logical_or,
    "Xor": relax.op.logical_xor,
    "Not": relax.op.logical_not,
    "BitwiseAnd": relax.op.bitwise_and,
    "BitwiseOr": relax.op.bitwise_or,
    "BitwiseXor": relax.op.bitwise_xor,
    "BitwiseNot": relax.op.bitwise_not,
}


@converts(*_SAME)
def same(node: Node) -> Expr:
    """The Relax operator of the same operands."""
    return _SAME[node.op](*node.xs())


@converts("BitShift")
def bit_shift(node: Node) -> Expr:
    """Shift; a shift of the whole width or more, or by a negative count, is undefined in C and defined by ONNX.

    Such a shift gives 0, or -1 where a negative number goes to the right.
    """
    dtype = np.dtype(node.dtype(0))
    x, count = node.x(0), node.x(1)
    right = node.attr("direction") == "RIGHT"
    shift = relax.op.right_shift if right else relax.op.left_shift
    if not node.is_const(1) or bool(np.any(node.needed_const(1) >= 8 * dtype.itemsize)):
        width = relax.const(8 * dtype.itemsize, node.dtype(0))
        # As unsigned numbers, negative counts are large ones.
        small = relax.op.less(count, width)
        if dtype.kind == "i":
            small = relax.op.logical_and(small, relax.op.greater_equal(count, node.like(0)))
        safe = relax.op.where(small, count, node.like(0))
        beyond = (
            relax.op.right_shift(x, node.like(8 * dtype.itemsize - 1)) if right and dtype.kind == "i" else node.like(0)
        )
        return relax.op.where(small, shift(x, safe), beyond)
    return shift(x, count)
