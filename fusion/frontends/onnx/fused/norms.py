"""Normalizations: of sums, in sets that have no such operator yet, and of groups as they were first defined."""

from __future__ import annotations

import math

from fusion.frontends.onnx.fused.body import Body, expands

# Since these sets ONNX has the operators, and since this one its group normalization scales channels.
_LAYER_NORM, _BY_CHANNEL = 17, 21


@expands("LayerNormalization", domain="", below=_LAYER_NORM)
def layer_norm(body: Body) -> list[str]:
    """As ONNX defines it since."""
    return norm(body, body.x(0), body.x(1), body.x(2), axis=body.node.attr("axis", -1), epsilon=_epsilon(body, 1e-5))


@expands("SimplifiedLayerNormalization", domain="")
def simplified_layer_norm(body: Body) -> list[str]:
    """x / sqrt(mean(x²) + epsilon) * scale, and the divisor's reciprocal"""
    axis, epsilon = body.node.attr("axis", -1), _epsilon(body, 1e-5)
    return [body.op("RMSNormalization", body.x(0), body.x(1), axis=axis, epsilon=epsilon), _reciprocal(body, axis)]


def _reciprocal(body: Body, axis: int) -> str:
    if not body.node.wants(1):
        return ""
    body.refuse(body.node.dtype(0) != "float32", "the divisor of other dtypes than float32 is asked for")
    rank = len(body.node.shape(0))
    axes = body.const(list(range(axis % rank, rank)))
    square = body.op("ReduceMean", body.op("Mul", body.x(0), body.x(0)), axes)
    return body.op("Reciprocal", body.op("Sqrt", body.op("Add", square, body.like(_epsilon(body, 1e-5)))))


@expands("SkipLayerNormalization")
def skip_layer_norm(body: Body) -> list[str]:
    """norm(x + skip + bias), its mean and divisor, and the sum; the bias may be missing"""
    total = _sum(body, 4)
    return [*norm(body, total, body.x(2), body.x(3), epsilon=_epsilon(body, 1e-12)), total]


@expands("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_norm(body: Body) -> list[str]:
    """The same without means to subtract."""
    total = _sum(body, 3)
    return [body.op("RMSNormalization", total, body.x(2), axis=-1, epsilon=_epsilon(body, 1e-12)), "", "", total]


def _sum(body: Body, bias: int) -> str:
    total = body.op("Add", body.x(0), body.x(1))
    return body.op("Add", total, body.x(bias)) if body.x(bias) else total


def norm(body: Body, x: str, scale: str, bias: str, *, axis: int = -1, epsilon: float) -> list[str]:
    """Return the layer normalization of `x`, its mean and the reciprocal of its divisor."""
    wanted = 3 if body.node.wants(1) or body.node.wants(2) else 1
    names = body.ops("LayerNormalization", wanted, x, scale, *([bias] if bias else []), axis=axis, epsilon=epsilon)
    return names if wanted == 3 else [*names, "", ""]


def _epsilon(body: Body, default: float) -> float:
    return float(body.node.attr("epsilon", default))


@expands("GroupNormalization", domain="", below=_BY_CHANNEL)
def group_norm(body: Body) -> str:
    """[N, C, ...] normalized over each of the groups of channels, then scaled: one scale and one bias to a group"""
    shape, groups = body.node.shape(0), int(body.node.attr("num_groups", 1))
    parts = body.op("Reshape", body.x(0), body.const([shape[0], groups, math.prod(shape[1:]) // groups]))
    y = body.op("InstanceNormalization", parts, body.x(1), body.x(2), epsilon=_epsilon(body, 1e-5))
    return body.op("Reshape", y, body.const(shape))
