"""Normalizations; statistics of half precision are made in float32."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.relay.call import Call, dtype_of, scalar
from fusion.frontends.relay.registry import translates
from fusion.tensors import numpy_dtype


@translates("nn.batch_norm")
def batch_norm(call: Call) -> list[Expr]:
    """x, scale, shift, mean, variance -> normalised x, mean, variance; `scale=False` and `center=False` leave out what
    their operand holds."""
    gamma = call.x(1) if call.flag("scale", True) else _filled(call, 1, 1)
    beta = call.x(2) if call.flag("center", True) else _filled(call, 2, 0)
    axis, epsilon = call.axis("axis", 1), call.number("epsilon", 1e-5)
    statistics = (call.x(3), call.x(4))
    result = call.emit(
        relax.op.nn.batch_norm(call.x(0), gamma, beta, *statistics, axis=axis, epsilon=epsilon, training=False)
    )
    return [relax.TupleGetItem(result, 0), *statistics]


def _filled(call: Call, index: int, value: int) -> Expr:
    return constant(np.full(call.shape(index), value, numpy_dtype(call.dtype(index))))


@translates("nn.layer_norm")
def layer_norm(call: Call) -> Expr:
    axis = call.axis("axis", -1)
    if axis == call.rank(0) - 1:
        gamma = call.x(1) if call.flag("scale", True) else _filled(call, 1, 1)
        beta = call.x(2) if call.flag("center", True) else _filled(call, 2, 0)
        x, gamma, beta = (_wide(call, operand) for operand in (call.x(0), gamma, beta))
        return _narrow(call, relax.op.nn.layer_norm(x, gamma, beta, [-1], call.number("epsilon", 1e-5)))
    return _affine(call, _standardised(call, call.x(0), [axis]), axis)


@translates("nn.instance_norm")
def instance_norm(call: Call) -> Expr:
    """Over all axes but the first and that of the channels."""
    axis = call.axis("axis", 1)
    return _affine(call, _standardised(call, call.x(0), [i for i in range(1, call.rank(0)) if i != axis]), axis)


@translates("nn.group_norm")
def group_norm(call: Call) -> Expr:
    """Over the channels of a group and all axes behind them."""
    axis, groups, shape = call.axis("axis", 1), call.integer("num_groups", 0), call.shape(0)
    if groups < 1 or shape[axis] % groups:
        raise Declined(f"{shape[axis]} channels are not divided into {groups} groups")
    split = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    x = call.emit(relax.op.reshape(call.x(0), split))
    normal = _standardised(call, x, list(range(axis + 1, len(split))))
    return _affine(call, call.emit(relax.op.reshape(normal, shape)), axis)


def _standardised(call: Call, x: Expr, axes: list[int]) -> Expr:
    """Return (x - mean) / sqrt(variance + epsilon) over `axes`, wide."""
    x = _wide(call, x)
    centred = call.emit(relax.op.subtract(x, relax.op.mean(x, axes, True)))
    variance = relax.op.mean(relax.op.multiply(centred, centred), axes, True)
    spread = relax.op.sqrt(relax.op.add(variance, scalar(call.number("epsilon", 1e-5), dtype_of(x))))
    return call.emit(relax.op.divide(centred, spread))


def _affine(call: Call, x: Expr, axis: int) -> Expr:
    """Return `x` times operand 1 plus operand 2 along `axis`, as far as the attributes ask for them."""
    column = [-1 if i == axis else 1 for i in range(call.rank(0))]
    if call.flag("scale", True):
        x = relax.op.multiply(x, relax.op.reshape(_wide(call, call.x(1)), column))
    if call.flag("center", True):
        x = relax.op.add(x, relax.op.reshape(_wide(call, call.x(2)), column))
    return _narrow(call, x)


def _wide(call: Call, x: Expr) -> Expr:
    return call.emit(relax.op.astype(x, "float32")) if dtype_of(x) in ("float16", "bfloat16") else x


def _narrow(call: Call, x: Expr) -> Expr:
    return relax.op.astype(x, call.dtype(0)) if call.dtype(0) in ("float16", "bfloat16") else x


@translates("nn.l2_normalize")
def l2_normalize(call: Call) -> Expr:
    """x / sqrt(max(sum(x²), eps)); no axis means all."""
    x = call.x(0)
    axes = [call.axis_of(axis) for axis in call.ints("axis")]
    square = relax.op.sum(relax.op.multiply(x, x), axes or None, True)
    return relax.op.divide(x, relax.op.sqrt(relax.op.maximum(square, call.like(call.number("eps", 0.0)))))


@translates("nn.lrn")
def lrn(call: Call) -> Expr:
    """x / (bias + alpha / size * sum of x² over `size` neighbours along an axis)^beta, zeros beyond the edges."""
    x, axis, size = call.x(0), call.axis("axis", 1), call.integer("size", 5)
    if size % 2 == 0:
        raise Declined(f"{size} neighbours have no middle")
    shape = call.shape(0)
    widths = [size // 2 if i == axis else 0 for i in range(len(shape)) for _ in (0, 1)]
    squares = call.emit(relax.op.nn.pad(relax.op.multiply(x, x), widths))
    total = relax.op.strided_slice(squares, [axis], [0], [shape[axis]])
    for start in range(1, size):
        total = relax.op.add(total, relax.op.strided_slice(squares, [axis], [start], [start + shape[axis]]))
    base = relax.op.add(
        relax.op.multiply(total, call.like(call.number("alpha", 1e-4) / size)), call.like(call.number("bias", 2.0))
    )
    return relax.op.divide(x, relax.op.power(base, call.like(call.number("beta", 0.75))))


@translates("nn.softmax", "nn.fast_softmax", "nn.log_softmax")
def softmax(call: Call) -> Expr:
    function = relax.op.nn.log_softmax if call.operator == "nn.log_softmax" else relax.op.nn.softmax
    return _narrow(call, function(_wide(call, call.x(0)), call.axis("axis", -1)))


