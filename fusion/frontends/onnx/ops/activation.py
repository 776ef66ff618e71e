"""Activation functions as plain Relax operators, which later passes fuse as epilogues."""

from __future__ import annotations

from math import inf, isfinite

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.ops.half import Number, half_in_float32
from fusion.frontends.onnx.registry import converts

_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


@converts("Relu")
def relu(node: Node) -> Expr:
    return (
        relax.op.nn.relu(node.x(0)) if node.dtype(0).startswith("float") else relax.op.maximum(node.x(0), node.like(0))
    )


@converts("LeakyRelu")
def leaky_relu(node: Node) -> Expr:
    """TVM's own multiplies 0 too, which of an alpha that is no number makes NaN."""
    x, alpha = node.x(0), node.attr("alpha", 0.01)
    if isfinite(alpha):
        return relax.op.nn.leakyrelu(x, alpha)
    return relax.op.where(relax.op.less(x, node.like(0)), relax.op.multiply(x, node.like(alpha)), x)


@converts("PRelu")
def prelu(node: Node) -> Expr:
    x, slope = node.x(0), node.x(1)
    return relax.op.where(relax.op.less(x, node.like(0)), relax.op.multiply(x, slope), x)


@converts("ThresholdedRelu")
def thresholded_relu(node: Node) -> Expr:
    return relax.op.where(relax.op.greater(node.x(0), node.like(node.attr("alpha", 1.0))), node.x(0), node.like(0.0))


@converts("Sigmoid")
def sigmoid(node: Node) -> Expr:
    return relax.op.sigmoid(node.x(0))


@converts("Tanh")
def tanh(node: Node) -> Expr:
    return relax.op.tanh(node.x(0))


@converts("HardSigmoid")
@half_in_float32
def hard_sigmoid(node: Node, x: Expr, number: Number) -> Expr:
    return _hard_sigmoid(x, number(node.attr("alpha", 0.2)), number(node.attr("beta", 0.5)))


@converts("HardSwish")
@half_in_float32
def hard_swish(node: Node, x: Expr, number: Number) -> Expr:
    return relax.op.multiply(x, _hard_sigmoid(x, number(1.0 / 6.0), number(0.5)))


def _hard_sigmoid(x: Expr, alpha: Expr, beta: Expr) -> Expr:
    return relax.op.clip(relax.op.add(relax.op.multiply(x, alpha), beta), 0.0, 1.0)


@converts("Swish")
@half_in_float32
def swish(node: Node, x: Expr, number: Number) -> Expr:
    alpha = node.attr("alpha", 1.0)
    if alpha == 1.0:
        return relax.op.nn.silu(x)
    return relax.op.multiply(x, relax.op.sigmoid(relax.op.multiply(x, number(alpha))))


@converts("Elu")
@half_in_float32
def elu(node: Node, x: Expr, number: Number) -> Expr:
    below = relax.op.multiply(number(node.attr("alpha", 1.0)), relax.op.subtract(relax.op.exp(x), number(1.0)))
    return relax.op.where(relax.op.less(x, number(0.0)), below, x)


@converts("Celu")
@half_in_float32
def celu(node: Node, x: Expr, number: Number) -> Expr:
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0), whose second term is 0 above 0 but for an odd alpha."""
    alpha = node.attr("alpha", 1.0)
    power = relax.op.exp(relax.op.divide(x, number(alpha)))
    below = relax.op.multiply(number(alpha), relax.op.subtract(power, number(1.0)))
    above = x if 0 < abs(alpha) < inf else relax.op.add(x, relax.op.minimum(number(0.0), below))
    return relax.op.where(relax.op.less(x, number(0.0)), below, above)


@converts("Selu")
@half_in_float32
def selu(node: Node, x: Expr, number: Number) -> Expr:
    """gamma * x above 0; elsewhere alpha and gamma are multiplied first, as what their product overflows to is kept."""
    alpha, gamma = number(node.attr("alpha", _SELU_ALPHA)), number(node.attr("gamma", _SELU_GAMMA))
    below = relax.op.multiply(relax.op.multiply(alpha, gamma), relax.op.subtract(relax.op.exp(x), number(1.0)))
    return relax.op.where(relax.op.less_equal(x, number(0.0)), below, relax.op.multiply(gamma, x))


@converts("Softplus")
@half_in_float32
def softplus(node: Node, x: Expr, number: Number) -> Expr:
    return _softplus(node, x, number)


@converts("Mish")
@half_in_float32
def mish(node: Node, x: Expr, number: Number) -> Expr:
    return relax.op.multiply(x, relax.op.tanh(_softplus(node, x, number)))


def _softplus(node: Node, x: Expr, number: Number) -> Expr:
    """max(x, 0) + log(1 + z) with z = exp(-|x|), which does not overflow; a small z takes the logarithm's series,
    because
    1 + z would round it away."""
    z = node.emit(relax.op.exp(relax.op.negative(relax.op.abs(x))))
    slope = relax.op.subtract(number(0.5), relax.op.multiply(z, number(1.0 / 3.0)))
    series = relax.op.multiply(z, relax.op.subtract(number(1.0), relax.op.multiply(z, slope)))
    logarithm = relax.op.where(relax.op.less(z, number(0.01)), series, relax.op.log(relax.op.add(z, number(1.0))))
    return relax.op.add(relax.op.nn.relu(x), logarithm)


@converts("Softsign")
def softsign(node: Node) -> Expr:
    return relax.op.divide(node.x(0), relax.op.add(node.like(1.0), relax.op.abs(node.x(0))))


@converts("Gelu")
def gelu(node: Node) -> Expr:
    exact = node.attr("approximate", "none") == "none"
    return relax.op.nn.gelu(node.x(0)) if exact else relax.op.nn.gelu_tanh(node.x(0))


@converts("Shrink")
def shrink(node: Node) -> Expr:
    """In float32, whatever the dtype, as ONNX Runtime has it: the bias and the limit may be no integers."""
    dtype = node.dtype(0)
    x = node.x(0) if dtype == "float32" else node.emit(relax.op.astype(node.x(0), "float32"))
    bias, limit, end = (
        relax.const(number, "float32")
        for number in (node.attr("bias", 0.0), node.attr("lambd", 0.5), -node.attr("lambd", 0.5))
    )
    inner = relax.op.where(relax.op.greater(x, limit), relax.op.subtract(x, bias), relax.const(0.0, "float32"))
    result = relax.op.where(relax.op.less(x, end), relax.op.add(x, bias), inner)
    return result if dtype == "float32" else relax.op.astype(result, dtype)


@converts("Clip")
def clip(node: Node) -> Expr:
    """One `relax.clip` where both bounds are numbers: a `call_tir` here would stop the layout passes. A bound that is
    not given is the last finite number, but behind a lower one of zero, which is a relu."""
    low, high = _bound(node, 1, "min"), _bound(node, 2, "max")
    x = node.x(0)
    if node.dtype(0).startswith("float") and not (low == 0.0 and high is None):
        ends = np.finfo(node.dtype(0))
        low, high = float(ends.min) if low is None else low, float(ends.max) if high is None else high
    if isinstance(low, float) and isinstance(high, float) and node.dtype(0).startswith("float") and low <= high:
        return relax.op.clip(x, low, high)
    if low == 0.0 and high is None and node.dtype(0).startswith("float"):
        return relax.op.nn.relu(x)
    x = x if low is None else relax.op.maximum(x, _operand(node, low))
    return x if high is None else relax.op.minimum(x, _operand(node, high))


def _bound(node: Node, index: int, name: str) -> float | Expr | None:
    if node.has(index) and not node.is_const(index):
        return node.x(index)
    value = node.const(index)
    number = node.attr(name) if value is None else value.reshape(-1)[0]
    if number is None:
        return None
    return float(number) if node.dtype(0).startswith("float") else node.x(index)


def _operand(node: Node, bound: float | Expr) -> Expr:
    return node.like(bound) if isinstance(bound, float) else bound


@converts("Softmax", "LogSoftmax")
@half_in_float32
def softmax(node: Node, x: Expr, number: Number) -> Expr:
    """Softmax along one axis; before opset 13, over all axes from that one on."""
    function = relax.op.nn.softmax if node.op == "Softmax" else relax.op.nn.log_softmax
    shape = node.shape(0)
    if not shape:
        raise Declined("softmax of a scalar")
    axis = node.axis(default=-1 if node.opset >= 13 else 1)
    if node.opset >= 13 or axis == len(shape) - 1:
        return function(x, axis)
    flat = (int(np.prod(shape[:axis])), int(np.prod(shape[axis:])))
    return relax.op.reshape(function(relax.op.reshape(x, flat), 1), shape)
