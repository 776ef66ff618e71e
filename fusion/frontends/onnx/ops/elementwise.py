"""Arithmetic and mathematical functions, element by element with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import reduce

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.ops.half import cast, wide_of
from fusion.frontends.onnx.registry import converts
from fusion.guards.check import check
from fusion.guards.kinds import ratio_guard

_UNARY: dict[str, Callable[[Expr], Expr]] = {
    "Abs": relax.op.abs,
    "Acos": relax.op.acos,
    "Acosh": relax.op.acosh,
    "Asin": relax.op.asin,
    "Asinh": relax.op.asinh,
    "Atan": relax.op.atan,
    "Atanh": relax.op.atanh,
    "Ceil": relax.op.ceil,
    "Cos": relax.op.cos,
    "Cosh": relax.op.cosh,
    "Exp": relax.op.exp,
    "Floor": relax.op.floor,
    "Log": relax.op.log,
    "Neg": relax.op.negative,
    "Round": relax.op.round,
    "Sign": relax.op.sign,
    "Sin": relax.op.sin,
    "Sinh": relax.op.sinh,
    "Sqrt": relax.op.sqrt,
    "Tan": relax.op.tan,
    "Erf": relax.op.erf,
    "IsNaN": relax.op.isnan,
}
_BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "Add": relax.op.add,
    "Sub": relax.op.subtract,
    "Mul": relax.op.multiply,
    "Div": relax.op.divide,
    "Min": relax.op.minimum,
    "Max": relax.op.maximum,
}


@converts(*_UNARY)
def unary(node: Node) -> Expr:
    if node.dtype(0).startswith("uint"):
        if node.op == "Abs":
            return node.x(0)
        if node.op == "Sign":
            return relax.op.minimum(node.x(0), node.like(1))
    if node.op == "Sign" and node.dtype(0) in ("float32", "float64"):
        return _sign(node)
    if node.op == "IsNaN":
        return relax.op.isnan(_readable(node))
    if node.op == "Round":
        rounded = relax.op.round(_readable(node))
        return relax.op.astype(rounded, "bfloat16") if node.dtype(0) == "bfloat16" else rounded
    return _UNARY[node.op](node.x(0))


def _readable(node: Node) -> Expr:
    """Return input 0 in a dtype whose bits TVM tests and rounds: float32 for bfloat16."""
    return relax.op.astype(node.x(0), "float32") if node.dtype(0) == "bfloat16" else node.x(0)


def _sign(node: Node) -> Expr:
    """1, -1, and what is neither above nor below zero as it is: NaN too."""
    x, zero = node.x(0), node.like(0)
    below = relax.op.where(relax.op.less(x, zero), node.like(-1), x)
    return relax.op.where(relax.op.greater(x, zero), node.like(1), below)


@converts("Add", "Sub", "Mul", "Div", "Min", "Max")
def binary(node: Node) -> Expr:
    """Fold a variadic operator from the left; the operators of two operands are the case of length two."""
    return _folded(_BINARY[node.op], node.xs(), node)


def _folded(operator: Callable[[Expr, Expr], Expr], operands: Iterable[Expr], node: Node) -> Expr:
    """Return the operands joined from the left, each step bound: TVM descends into expressions on the stack."""
    return reduce(lambda known, operand: node.emit(operator(known, operand)), operands)


@converts("Sum", "Mean")
def total(node: Node) -> Expr:
    """Of half precision rounded once."""
    dtype = node.dtype(0)
    wide = wide_of(dtype)
    result = _folded(relax.op.add, (cast(x, dtype, wide) for x in node.xs()), node)
    if node.op == "Mean":
        result = relax.op.divide(result, relax.const(len(node.proto.input), wide))
    return cast(result, wide, dtype)


@converts("Reciprocal")
def reciprocal(node: Node) -> Expr:
    return relax.op.divide(node.like(1.0), node.x(0))


_EXACT_IN_HALF = 2048
"""Up to here float16 holds every whole number, and so whether it is odd."""


@converts("Pow")
def power(node: Node) -> Expr:
    """x ** y in the dtype of x; whole numbers go through float64, which is exact up to 2 ** 53, but for squares and
    cubes, which wrap."""
    dtype = node.dtype(0)
    exponent = node.needed_const(1) if node.is_const(1) else None
    number = exponent.item() if exponent is not None and exponent.ndim == 0 else None
    if not node.is_floating(0) and number in (2, 3):
        return reduce(relax.op.multiply, [node.x(0)] * int(number))
    if dtype == node.dtype(1) and dtype.startswith("float"):
        return relax.op.power(node.x(0), node.x(1))
    exact = exponent is not None and bool(np.all(np.abs(exponent.astype("float64")) <= _EXACT_IN_HALF))
    if dtype.startswith("float") and exact:
        return relax.op.power(node.x(0), relax.op.astype(node.x(1), dtype))
    result = relax.op.power(relax.op.astype(node.x(0), "float64"), relax.op.astype(node.x(1), "float64"))
    return relax.op.astype(result, dtype)


@converts("Mod")
def mod(node: Node) -> Expr:
    """The remainder with the sign of the divisor (fmod=0) or of the dividend (fmod=1)."""
    if node.attr("fmod", 0) and node.dtype(0) == "bfloat16":  # exact in any wider dtype; TVM has none of this one
        wide = relax.op.mod(*(relax.op.astype(x, "float32") for x in node.xs()))
        return relax.op.astype(wide, "bfloat16")
    if node.attr("fmod", 0):
        return relax.op.mod(node.x(0), node.x(1))
    if node.is_floating(0):
        return _floor_mod_of_floats(node)
    return relax.op.floor_mod(node.x(0), node.x(1))


def _floor_mod_of_floats(node: Node) -> Expr:
    """numpy's `mod`: fmod, plus the divisor where the signs differ; a zero result has the divisor's sign."""
    x, y = node.x(0), node.x(1)
    rest = node.emit(relax.op.mod(x, y))
    zero = node.like(0.0)
    differ = relax.op.logical_xor(relax.op.less(rest, zero), relax.op.less(y, zero))
    moved = relax.op.where(differ, relax.op.add(rest, y), rest)
    signed_zero = relax.op.where(relax.op.less(y, zero), node.like(-0.0), zero)
    return relax.op.where(relax.op.equal(rest, zero), signed_zero, moved)


@converts("IsInf")
def is_infinite(node: Node) -> Expr:
    dtype, infinity = node.dtype(0), float("inf")
    if not node.is_floating(0):
        raise Declined(f"IsInf of {dtype}")
    x, wide = _readable(node), "float32" if dtype == "bfloat16" else dtype
    wanted = [
        sign for sign, name in ((infinity, "detect_positive"), (-infinity, "detect_negative")) if node.attr(name, 1)
    ]
    found = [relax.op.equal(x, relax.const(sign, wide)) for sign in wanted]
    return reduce(relax.op.logical_or, found) if found else relax.op.zeros(node.shape(0), "bool")


@converts("Where")
def where(node: Node) -> Expr:
    return relax.op.where(node.x(0), node.x(1), node.x(2))


@converts("Dropout")
def dropout(node: Node) -> Expr | list[Expr]:
    """What it is in inference: nothing. Before set 12 ONNX Runtime's mask then holds zeros, later on ones.

    ONNX Runtime looks at the ratio nevertheless, and fails in the run where it is none.
    """
    if node.has(2) and bool(node.needed_const(2).any()):
        raise Declined("training is asked for")
    kept = _kept_by_ratio(node) if node.has(1) else node.x(0)
    mask = relax.op.ones if node.opset >= 12 else relax.op.zeros
    return [kept, mask(node.shape(0), node.out_dtype(1))] if node.wants(1) else kept


def _kept_by_ratio(node: Node) -> Expr:
    """Return the input, which where the ratio is none that is known is read after that is checked."""
    if node.is_const(1) and node.needed_const(1).size == 1 and 0 <= node.needed_const(1).item() < 1:
        return node.x(0)
    if math.prod(node.shape(1)) != 1:
        raise Declined("the ratio is not one number")
    ratio = relax.op.reshape(check(node.builder, node.x(1), ratio_guard(node.where)), ())
    zero, one = (relax.const(number, kind) for number, kind in ((0, node.dtype(0)), (1, node.dtype(1))))
    return relax.op.where(relax.op.less(ratio, one), node.x(0), zero)


@converts("Scaler", domain="ai.onnx.ml")
def scaler(node: Node) -> Expr:
    """float32 of (x - offset) * scale, of float64 in it: a number each, or one of each column."""
    offset, scale = node.attr("offset", []), node.attr("scale", [])
    widths = {1, node.shape(0)[-1]} if len(node.shape(0)) == 2 else {1}
    if len(offset) != len(scale) or len(scale) not in widths:
        raise Declined(f"{len(offset)} offsets and {len(scale)} scales of a {len(node.shape(0))}-dimensional tensor")
    dtype = "float64" if node.dtype(0) == "float64" else "float32"
    by, times = (relax.const(np.array(values, dtype), dtype) for values in (offset, scale))
    scaled = relax.op.multiply(relax.op.subtract(cast(node.x(0), node.dtype(0), dtype), by), times)
    return cast(scaled, dtype, "float32")
