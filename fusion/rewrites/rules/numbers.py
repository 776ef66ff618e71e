"""Arithmetic with constants that is less, or none."""

from __future__ import annotations

from math import prod

import numpy as np
from tvm import relax
from tvm.relax import op

from fusion.constants import constant
from fusion.declined import Declined
from fusion.rewrites.graph import NARROW, Emit, Value
from fusion.rewrites.rule import Example, Rule, scalar
from fusion.rewrites.rules.channels import OUTPUT
from fusion.rewrites.rules.scales import checked, full, operand_and_constant


def _neutral(root: Value) -> Value | None:
    """Return the operand that `root` leaves as it is."""
    found = operand_and_constant(root)
    if found is None:
        return None
    value, weight = found
    neutral = 0.0 if root.op in ("add", "subtract") else 1.0
    array = weight.array
    same = array.size > 0 and array.flat[0] == neutral and bool((array == neutral).all())
    return value if same else None


IDENTITY = Rule(
    name="identity",
    form="x * 1, x / 1, x + 0, x - 0  ->  x",
    source="ONNX Runtime's NoopElimination",
    assumes="-0 + 0 may stay -0",
    roots=frozenset(("multiply", "divide", "add", "subtract")),
    match=_neutral,
    build=lambda emit, root, value: value.expr,
    example=Example(lambda b, x: op.exp(b.emit(op.multiply(b.emit(op.exp(x)), scalar(1)))), ((3, 40),)),
    near_miss=Example(lambda b, x: op.multiply(x, relax.const(np.ones((3, 1), "float32"))), ((1, 40),)),
)


def _divided(root: Value) -> tuple[Value, Value] | None:
    """Return the operands of a quotient of many numbers by constants."""
    return operand_and_constant(root) if prod(root.shape) > 1 else None


def _reciprocal(emit: Emit, root: Value, found: tuple[Value, Value]) -> relax.Expr:
    value, weight = found
    array = full(weight, value)
    with np.errstate(all="ignore"):
        inverse = checked(1.0 / array, "the reciprocal")
    if not inverse.all():
        raise Declined("the divisor is infinite")
    return op.multiply(value.expr, constant(inverse.astype(weight.dtype)))


RECIPROCAL = Rule(
    name="reciprocal",
    form="x / c  ->  x * (1 / c)",
    source="compilers' -freciprocal-math; OpenVINO's ConvertDivide",
    assumes="one more rounding, exact for powers of two; 1 / c is a normal number; a single quotient, which may be the "
    "scale of a quantization, stays",
    roots=frozenset(("divide",)),
    match=_divided,
    build=_reciprocal,
    example=Example(lambda b, x: op.divide(x, scalar(6)), ((3, 40),)),
    near_miss=Example(lambda b, x: op.divide(x, scalar(3e38)), ((3, 40),)),
    declines="overflow or lose digits",
)


def _squared(root: Value) -> Value | None:
    base, exponent = root.args
    return base if exponent.number == 2.0 and base.shape == root.shape else None


SQUARE = Rule(
    name="square",
    form="power(x, 2)  ->  x * x",
    source="folklore",
    assumes="nothing: both round once",
    roots=frozenset(("power",)),
    match=_squared,
    build=lambda emit, root, value: op.multiply(value.expr, value.expr),
    example=Example(lambda b, x: op.power(x, scalar(2)), ((3, 40),)),
    near_miss=Example(lambda b, x: op.power(b.emit(op.abs(x)), scalar(2.5)), ((3, 40),)),
)


def _batch_norm(root: Value) -> Value | None:
    """Return the normalisation whose first result `root` is."""
    norm = root.data
    first = norm.op == "nn.batch_norm" and root.bound.index == 0
    return norm if first and all(arg.is_weight for arg in norm.args[1:]) else None


def _scale_and_shift(emit: Emit, root: Value, norm: Value) -> relax.Expr:
    data = norm.data
    gamma, beta, mean, variance = (arg.array.astype("float64") for arg in norm.args[1:])
    scale = (gamma if norm.attrs.scale else 1.0) / np.sqrt(variance + float(norm.attrs.epsilon))
    shift = (beta if norm.attrs.center else 0.0) - mean * scale
    column = [-1 if axis == int(norm.attrs.axis) % len(data.shape) else 1 for axis in range(len(data.shape))]
    scaled, shifted = (constant(array.astype(data.dtype).reshape(column)) for array in (scale, shift))
    return op.add(emit(op.multiply(data.expr, scaled)), shifted)


def _batch_norm_example(b: relax.BlockBuilder, x: relax.Var, *given: relax.Var) -> relax.Expr:
    known = [relax.const(np.arange(4, dtype="float32") + start) for start in range(1, 5)]
    whole = b.emit(op.nn.batch_norm(x, *(given or known), 1, training=False))
    return relax.TupleGetItem(whole, 0)


BATCH_NORM = Rule(
    name="batch_norm",
    form="batch_norm(x)  ->  x * scale + shift",
    source="TVM's DecomposeOpsForInference, which leaves the constants' arithmetic to every run",
    assumes="the statistics are known",
    roots=frozenset(("get",)),
    match=_batch_norm,
    build=_scale_and_shift,
    example=Example(_batch_norm_example, ((2, 4, 5, 6),)),
    near_miss=Example(_batch_norm_example, ((2, 4, 5, 6), (4,), (4,), (4,), (4,))),
)


def _rounded_before(root: Value) -> tuple[Value, Value] | None:
    """Return the normalisation whose first result `root` is, and the sums that it alone reads, rounded to 16 bits."""
    norm = _batch_norm(root)
    rounded = norm.data.data if norm and norm.data.op == "astype" else None
    if norm is None or rounded is None or rounded.op != "astype" or rounded.dtype not in NARROW:
        return None
    sums, alone = rounded.data, norm.data.reads == rounded.reads == 1
    linear = sums.data if sums.op == "add" else sums
    return (norm, sums) if alone and sums.dtype == norm.data.dtype and linear.op in OUTPUT else None


def _of_sums(emit: Emit, root: Value, found: tuple[Value, Value]) -> relax.Expr:
    norm, sums = found
    call, (_, *given) = norm.bound, norm.args
    whole = relax.Call(call.op, [sums.expr, *(each.expr for each in given)], call.attrs, call.ty_args)
    return relax.TupleGetItem(emit(whole), 0)


def _rounded_example(b: relax.BlockBuilder, x: relax.Var, rounded_for_all: bool = False) -> relax.Expr:
    """Sums of integers, which float16 has."""
    taps = relax.const(np.random.default_rng(3).integers(-9, 9, (4, 4, 3, 3)).astype("float32"))
    sums = b.emit(op.nn.conv2d(b.emit(op.sign(x)), taps, padding=1))
    rounded = b.emit(op.astype(b.emit(op.add(sums, scalar(3))), "float16"))
    made = b.emit(_batch_norm_example(b, b.emit(op.astype(rounded, "float32"))))
    return op.add(made, b.emit(op.astype(rounded, "float32"))) if rounded_for_all else made


UNROUNDED_NORM = Rule(
    name="unrounded_norm",
    form="batch_norm(widened(rounded(conv(x, w) + b)))  ->  batch_norm(conv(x, w) + b), of sums in float32",
    source="ONNX Runtime on CPUs, which computes both in float32 and drops the casts between",
    assumes="nothing else reads what is rounded",
    roots=frozenset(("get",)),
    match=_rounded_before,
    build=_of_sums,
    example=Example(_rounded_example, ((2, 4, 5, 6),)),
    near_miss=Example(lambda b, x: _rounded_example(b, x, True), ((2, 4, 5, 6),)),
)
