"""Normalizations as high-level Relax operators with static attributes."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.frontends.onnx.node import Decline, Node
from fusion.frontends.onnx.registry import converts


@converts("BatchNormalization")
def batch_norm(node: Node) -> Expr | list[Expr]:
    """y = scale * (x - mean) / sqrt(var + epsilon) + bias over channels, axis 1."""
    dtypes = {node.dtype(index) for index in range(5)}
    if len(dtypes) > 1:
        raise Decline(f"dtypes {', '.join(sorted(dtypes))} are mixed")
    epsilon = node.attr("epsilon", 1e-5)
    # ONNX Runtime takes other numbers than 1 for 0, of which onnx's inference asks for the outputs of training.
    if node.attr("training_mode", 0) == 1:
        return _batch_norm_in_training(node, epsilon)
    if any(node.wants(index) for index in range(1, len(node.proto.output))):
        raise Decline("statistics of training are asked for")
    result = relax.op.nn.batch_norm(
        node.x(0), *(node.x(index) for index in range(1, 5)), axis=1, epsilon=epsilon, training=False
    )
    return [relax.TupleGetItem(node.emit(result), 0)]


def _batch_norm_in_training(node: Node, epsilon: float) -> list[Expr]:
    """Normalize by the batch's own statistics; the running ones move towards these by 1 - momentum."""
    axes = [axis for axis in range(len(node.shape(0))) if axis != 1]
    column = (1, node.shape(0)[1], *[1] * (len(axes) - 1))
    mean, variance = node.emit(relax.op.mean(node.x(0), axes)), node.emit(relax.op.variance(node.x(0), axes))
    scale, bias, old_mean, old_variance = (node.x(index) for index in range(1, 5))
    factor = relax.op.divide(scale, relax.op.sqrt(relax.op.add(variance, node.like(epsilon))))
    centred = relax.op.subtract(node.x(0), relax.op.reshape(mean, column))
    y = relax.op.add(relax.op.multiply(centred, relax.op.reshape(factor, column)), relax.op.reshape(bias, column))
    momentum = node.attr("momentum", 0.9)
    return [
        y,
        *(
            relax.op.add(relax.op.multiply(old, node.like(momentum)), relax.op.multiply(new, node.like(1 - momentum)))
            for old, new in ((old_mean, mean), (old_variance, variance))
        ),
    ]


@converts("LayerNormalization")
def layer_norm(node: Node) -> list[Expr]:
    """Normalize over all axes from `axis` on; half precision is computed in float32, as `stash_type` asks."""
    shape, dtype = node.shape(0), node.dtype(0)
    axis = node.axis(default=-1)
    axes, inner = list(range(axis, len(shape))), shape[axis:]
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    x = _cast(node.x(0), dtype, wide)
    ones, zeros = (relax.const(np.full(inner, value, dtype=wide), wide) for value in (1, 0))
    # A scale may have axes that are not normalized.
    apart = any(node.has(index) and len(node.shape(index)) > len(inner) for index in (1, 2))
    scale = ones if apart else _cast(_of_shape(node, 1, inner), dtype, wide)
    bias = zeros if apart or not node.has(2) else _cast(_of_shape(node, 2, inner), dtype, wide)
    y = relax.op.nn.layer_norm(x, scale, bias, axes, node.attr("epsilon", 1e-5))
    if apart:
        y = relax.op.multiply(y, _cast(node.x(1), dtype, wide))
        y = relax.op.add(y, _cast(node.x(2), dtype, wide)) if node.has(2) else y
    return [_cast(y, wide, dtype), *_statistics(node, x, axes, wide)]


def _statistics(node: Node, x: Expr, axes: list[int], dtype: str) -> list[Expr]:
    """Return mean and inverse standard deviation, if they are asked for."""
    if not node.wants(1) and not node.wants(2):
        return []
    mean = relax.op.mean(x, axes, True)
    spread = relax.op.add(relax.op.variance(x, axes, True), relax.const(node.attr("epsilon", 1e-5), dtype))
    return [mean, relax.op.divide(relax.const(1.0, dtype), relax.op.sqrt(spread))]


@converts("RMSNormalization")
def rms_norm(node: Node) -> Expr:
    """x / sqrt(mean(x²) + epsilon) * scale over all axes from `axis` on, in the dtype of the scale."""
    dtype = node.dtype(0)
    axis = node.axis(default=-1)
    axes = list(range(axis, len(node.shape(0))))
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    x = node.emit(_cast(node.x(0), dtype, wide))
    if len(axes) == 1:
        scale = _cast(_of_shape(node, 1, node.shape(0)[axis:]), node.dtype(1), wide)
        return _cast(relax.op.nn.rms_norm(x, scale, axes, node.attr("epsilon", 1e-5)), wide, node.dtype(1))
    # TVM's lowering of rms_norm takes one axis only.
    square = relax.op.add(
        relax.op.mean(relax.op.multiply(x, x), axes, True), relax.const(node.attr("epsilon", 1e-5), wide)
    )
    normal = relax.op.divide(x, relax.op.sqrt(square))
    return relax.op.multiply(_cast(normal, wide, node.dtype(1)), node.x(1))


@converts("MeanVarianceNormalization")
def mean_variance_norm(node: Node) -> Expr:
    """(x - mean) / sqrt(var), without an epsilon, as ONNX Runtime has it."""
    dtype, rank = node.dtype(0), len(node.shape(0))
    axes = sorted({int(axis) % rank for axis in node.attr("axes") or (0, 2, 3)})
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    x = node.emit(_cast(node.x(0), dtype, wide))
    centred = node.emit(relax.op.subtract(x, relax.op.mean(x, axes, True)))
    variance = relax.op.mean(relax.op.multiply(centred, centred), axes, True)
    return _cast(relax.op.divide(centred, relax.op.sqrt(variance)), wide, dtype)


@converts("InstanceNormalization")
def instance_norm(node: Node) -> Expr:
    axes = list(range(2, len(node.shape(0))))
    return relax.op.nn.instance_norm(node.x(0), node.x(1), node.x(2), 1, axes, node.attr("epsilon", 1e-5))


def _cast(x: Expr, source: str, target: str) -> Expr:
    return x if source == target else relax.op.astype(x, target)


def _of_shape(node: Node, index: int, shape: tuple[int, ...]) -> Expr:
    """Return input `index` as exactly `shape`: ONNX lets a scale broadcast, Relax does not."""
    return node.x(index) if node.shape(index) == shape else relax.op.broadcast_to(node.x(index), shape)
