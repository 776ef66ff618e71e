"""Integer convolutions and products of quantized tensors, computed exactly in int32."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import converts
from fusion.frontends.onnx.slow_operators import has_exact_sums
from fusion.frontends.onnx.windows import window_of


@converts("QLinearMatMul")
def qlinear_matmul(node: Node) -> Expr:
    """A, its scale and zero point, B and its, then those of the result."""
    a = _centred(node, 0, 2, -1)
    b = _centred(node, 3, 5, None)
    scale = relax.op.multiply(_wide(node, 1, -1), _wide(node, 4, None))
    return _requantize(node, relax.op.matmul(a, b), relax.op.divide(scale, _wide(node, 6, None)), 7)


@converts("QLinearConv")
def qlinear_conv(node: Node) -> Expr:
    """x with scale and zero point, w with scale and zero point per output channel, those of the result, bias in
    int32."""
    if len(node.shape(0)) != 4:
        raise Declined("a quantized convolution over other than two spatial axes")
    result = _conv(node, _centred(node, 0, 2, None), _centred_weight(node, 3, 5), node.shape(3))
    if node.has(8):
        result = relax.op.add(result, relax.op.reshape(node.x(8), (1, node.shape(8)[0], 1, 1)))
    weight_scale = relax.op.reshape(node.x(4), (1, node.shape(4)[0], 1, 1)) if node.shape(4) else node.x(4)
    scale = relax.op.divide(relax.op.multiply(node.x(1), weight_scale), node.x(6))
    return _requantize(node, result, scale, 7)


@converts("ConvInteger")
def conv_integer(node: Node) -> Expr:
    if len(node.shape(0)) != 4:
        raise Declined("an integer convolution over other than two spatial axes")
    return _conv(node, _centred(node, 0, 2, None), _centred_weight(node, 1, 3), node.shape(1))


@converts("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node) -> list[Expr]:
    """x / scale + zero point in uint8, by the range of x and 0; if all of it is 0, the scale is 1."""
    x, zero, one, shape = node.x(0), node.like(0.0), node.like(1.0), node.shape(0)
    if 0 in shape:
        return [relax.op.zeros(shape, "uint8"), one, relax.const(0, "uint8")]
    axes = list(range(len(shape)))
    low = node.emit(relax.op.minimum(zero, relax.op.min(x, axes) if axes else x))
    high = node.emit(relax.op.maximum(zero, relax.op.max(x, axes) if axes else x))
    step = relax.op.divide(relax.op.subtract(high, low), node.like(255.0))
    scale = node.emit(relax.op.where(relax.op.equal(low, high), one, step))
    offset, most = relax.op.divide(relax.op.negative(low), scale), node.like(255.0)
    # The scale of denormals may be 0: 0 / 0 becomes 255, as in ONNX Runtime.
    offset = node.emit(relax.op.round(relax.op.where(relax.op.less(offset, most), offset, most)))
    moved = relax.op.add(relax.op.round(relax.op.divide(x, scale)), offset)
    return [relax.op.astype(relax.op.clip(moved, 0.0, 255.0), "uint8"), scale, relax.op.astype(offset, "uint8")]


def _centred_weight(node: Node, value: int, zero: int) -> Expr:
    """Return the weight minus its zero point, one for all or one per output channel, in int32."""
    weight = relax.op.astype(node.x(value), "int32")
    if not node.has(zero):
        return weight
    offset = relax.op.reshape(node.x(zero), (node.shape(zero)[0], 1, 1, 1)) if node.shape(zero) else node.x(zero)
    return relax.op.subtract(weight, relax.op.astype(offset, "int32"))


def _conv(node: Node, x: Expr, weight: Expr, shape: tuple[int, ...]) -> Expr:
    """Return the sums in int32 of a convolution of integers, whose weights have this shape; those in groups are made of
    float32, for which there are kernels, where that holds each."""
    window, groups = window_of(node, shape[2:]), int(node.attr("group", 1))
    is_float = groups > 1 and has_exact_sums(shape)
    if is_float:
        x, weight = (relax.op.astype(each, "float32") for each in (x, weight))
    sums = relax.op.nn.conv2d(x, weight, window.strides, window.padding, window.dilations, groups)
    return relax.op.astype(sums, "int32") if is_float else sums


def _centred(node: Node, value: int, zero: int, axis: int | None) -> Expr:
    """Return input `value` minus its zero point in int32; a vector of zero points runs along the axis before `axis`."""
    x = relax.op.astype(node.x(value), "int32")
    if not node.has(zero):
        return x
    return relax.op.subtract(x, relax.op.astype(_along(node.x(zero), node.shape(zero), axis), "int32"))


def _wide(node: Node, index: int, axis: int | None) -> Expr:
    return relax.op.astype(_along(node.x(index), node.shape(index), axis), "float32")


def _along(x: Expr, shape: tuple[int, ...], axis: int | None) -> Expr:
    return relax.op.expand_dims(x, axis) if axis is not None and shape not in ((), (1,)) else x


def _requantize(node: Node, result: Expr, scale: Expr, zero: int) -> Expr:
    """round(result * scale) + zero point, saturated to the dtype of the zero point."""
    target = np.iinfo(node.out_dtype())
    rounded = relax.op.round(relax.op.multiply(relax.op.astype(result, "float32"), scale))
    moved = relax.op.add(rounded, relax.op.astype(node.x(zero), "float32"))
    return relax.op.astype(relax.op.clip(moved, float(target.min), float(target.max)), node.out_dtype())
