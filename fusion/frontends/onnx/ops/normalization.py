"""Normalizations as high-level Relax operators with static attributes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.ops.half import cast, wide_of
from fusion.frontends.onnx.registry import converts


@converts("BatchNormalization")
def batch_norm(node: Node) -> Expr | list[Expr]:
    """y = scale * (x - mean) / sqrt(var + epsilon) + bias over channels, axis 1; half precision in float32, as it
    cancels."""
    dtypes = {wide_of(node.dtype(index)) for index in range(5)}
    if len(dtypes) > 1:
        raise Declined(f"dtypes {', '.join(sorted(dtypes))} are mixed")
    (wide,) = dtypes
    half = [node.dtype(index) != wide for index in range(5)]
    operands = [node.emit(relax.op.astype(x, wide)) if narrow else x for x, narrow in zip(node.xs(), half, strict=True)]
    epsilon = node.attr("epsilon", 1e-5)
    # ONNX Runtime takes other numbers than 1 for 0, of which onnx's inference asks for the outputs of training.
    if node.attr("training_mode", 0) == 1:
        results = _batch_norm_in_training(node, operands, epsilon, wide)
        return [cast(y, wide, node.dtype(index)) for y, index in zip(results, (0, 3, 4), strict=True)]
    if any(node.wants(index) for index in range(1, len(node.proto.output))):
        raise Declined("statistics of training are asked for")
    result = relax.op.nn.batch_norm(*operands, axis=1, epsilon=epsilon, training=False)
    return [cast(relax.TupleGetItem(node.emit(result), 0), wide, node.dtype(0))]


def _batch_norm_in_training(node: Node, operands: Sequence[Expr], epsilon: float, dtype: str) -> list[Expr]:
    """Normalize by the batch's own statistics; the running ones move towards these by 1 - momentum."""
    x, scale, bias, *running = operands
    axes = [axis for axis in range(len(node.shape(0))) if axis != 1]
    column = (1, node.shape(0)[1], *[1] * (len(axes) - 1))
    mean, variance = node.emit(relax.op.mean(x, axes)), node.emit(relax.op.variance(x, axes))
    factor = relax.op.divide(scale, relax.op.sqrt(relax.op.add(variance, relax.const(epsilon, dtype))))
    centred = relax.op.subtract(x, relax.op.reshape(mean, column))
    y = relax.op.add(relax.op.multiply(centred, relax.op.reshape(factor, column)), relax.op.reshape(bias, column))
    momentum = node.attr("momentum", 0.9)
    kept, moved = relax.const(momentum, dtype), relax.const(1 - momentum, dtype)
    moves = zip(running, (mean, variance), strict=True)
    return [y, *(relax.op.add(relax.op.multiply(old, kept), relax.op.multiply(new, moved)) for old, new in moves)]


@converts("LayerNormalization")
def layer_norm(node: Node) -> list[Expr]:
    """Normalize over all axes from `axis` on; half precision is computed in float32, as `stash_type` asks."""
    shape, dtype = node.shape(0), node.dtype(0)
    axis = node.axis(default=-1)
    axes, inner = list(range(axis, len(shape))), shape[axis:]
    wide = wide_of(dtype)
    x = cast(node.x(0), dtype, wide)
    # A scale may have axes that are not normalized.
    apart = any(node.has(index) and len(node.shape(index)) > len(inner) for index in (1, 2))
    scale = _filled(inner, 1, wide) if apart else cast(_of_shape(node, 1, inner), dtype, wide)
    is_bare = apart or not node.has(2)
    bias = _filled(inner, 0, wide) if is_bare else cast(_of_shape(node, 2, inner), dtype, wide)
    y = relax.op.nn.layer_norm(x, scale, bias, axes, node.attr("epsilon", 1e-5))
    if apart:
        y = relax.op.multiply(y, cast(node.x(1), dtype, wide))
        y = relax.op.add(y, cast(node.x(2), dtype, wide)) if node.has(2) else y
    return [cast(y, wide, dtype), *_statistics(node, x, axes, wide)]


def _filled(shape: tuple[int, ...], value: int, dtype: str) -> Expr:
    return relax.const(np.full(shape, value, dtype), dtype)


def _statistics(node: Node, x: Expr, axes: list[int], dtype: str) -> list[Expr]:
    """Return mean and inverse standard deviation, if they are asked for, in the dtype that `stash_type` says."""
    asked = [node.out_dtype(at) for at in (1, 2) if node.wants(at)]
    if not asked:
        return []
    mean = relax.op.mean(x, axes, True)
    spread = relax.op.add(relax.op.variance(x, axes, True), relax.const(node.attr("epsilon", 1e-5), dtype))
    inverse = relax.op.divide(relax.const(1.0, dtype), relax.op.sqrt(spread))
    return [cast(mean, dtype, asked[0]), cast(inverse, dtype, asked[0])]


@converts("RMSNormalization")
def rms_norm(node: Node) -> Expr:
    """x / sqrt(mean(x²) + epsilon) * scale over all axes from `axis` on, in the dtype of the scale."""
    dtype = node.dtype(0)
    axis = node.axis(default=-1)
    axes = list(range(axis, len(node.shape(0))))
    wide = wide_of(dtype)
    x = node.emit(cast(node.x(0), dtype, wide))
    if len(axes) == 1:
        scale = cast(_of_shape(node, 1, node.shape(0)[axis:]), node.dtype(1), wide)
        return cast(relax.op.nn.rms_norm(x, scale, axes, node.attr("epsilon", 1e-5)), wide, node.dtype(1))
    # TVM's lowering of rms_norm takes one axis only.
    square = relax.op.add(
        relax.op.mean(relax.op.multiply(x, x), axes, True), relax.const(node.attr("epsilon", 1e-5), wide)
    )
    normal = relax.op.divide(x, relax.op.sqrt(square))
    return relax.op.multiply(cast(normal, wide, node.dtype(1)), node.x(1))


@converts("MeanVarianceNormalization")
def mean_variance_norm(node: Node) -> Expr:
    """(x - mean) / sqrt(var), without an epsilon, as ONNX Runtime has it."""
    dtype, rank = node.dtype(0), len(node.shape(0))
    axes = sorted({int(axis) % rank for axis in node.attr("axes") or (0, 2, 3)})
    wide = wide_of(dtype)
    x = node.emit(cast(node.x(0), dtype, wide))
    centred = node.emit(relax.op.subtract(x, relax.op.mean(x, axes, True)))
    variance = relax.op.mean(relax.op.multiply(centred, centred), axes, True)
    return cast(relax.op.divide(centred, relax.op.sqrt(variance)), wide, dtype)


@converts("InstanceNormalization")
def instance_norm(node: Node) -> Expr:
    axes = list(range(2, len(node.shape(0))))
    return relax.op.nn.instance_norm(node.x(0), node.x(1), node.x(2), 1, axes, node.attr("epsilon", 1e-5))


def _of_shape(node: Node, index: int, shape: tuple[int, ...]) -> Expr:
    """Return input `index` as exactly `shape`: ONNX lets a scale broadcast, Relax does not."""
    return node.x(index) if node.shape(index) == shape else relax.op.broadcast_to(node.x(index), shape)
