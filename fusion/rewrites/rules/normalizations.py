"""Normalisations that exporters write as means, squares and roots."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from fusion.constants import constant
from fusion.declined import Declined
from fusion.rewrites.graph import Emit, Value
from fusion.rewrites.patterns import Is, Named, Names, Power, Product, Sum, Tensor, Weight, matcher, minus
from fusion.rewrites.rule import Example, Rule

_X = Tensor("x")
_DEVIATION = Named("deviation", Sum(_X, minus(Is("mean", _X, name="mean"))))
_VARIANCE = Is("mean", Product(Power(Tensor("deviation"), 2.0)), name="variance")
_MEAN_SQUARE = Is("mean", Product(Power(_X, 2.0)), name="mean")


def _axes(reduced: Value) -> list[int]:
    """Return the axes of a mean that keeps them with an extent of 1."""
    rank = len(reduced.data.shape)
    if not reduced.attrs.keepdims:
        raise Declined("the mean does not keep its axes")
    axes = range(rank) if reduced.attrs.axis is None else reduced.attrs.axis
    return sorted(int(axis) % rank for axis in axes)


def _epsilon(names: Names) -> float:
    if not names["epsilon"] > 0.0:
        raise Declined("nothing positive is added to the variance")
    return float(names["epsilon"])


def _standardized(value: Value, axes: list[int], epsilon: float) -> relax.Expr:
    """Return what is normalised over `axes`: an image's plane by its own operator, so that channels may be scaled."""
    count = [value.shape[1]] if axes == [2, 3] and len(value.shape) == 4 else [value.shape[axis] for axis in axes]
    scale, shift = constant(np.ones(count, value.dtype)), constant(np.zeros(count, value.dtype))
    if axes == [2, 3] and len(value.shape) == 4:
        return op.nn.instance_norm(value.expr, scale, shift, 1, axes, epsilon)
    return op.nn.layer_norm(value.expr, scale, shift, axes, epsilon)


def _layer_norm(emit: Emit, root: Value, names: Names) -> relax.Expr:
    axes = _axes(names["mean"])
    if axes != _axes(names["variance"]):
        raise Declined("mean and variance run over other axes")
    return _standardized(names["x"], axes, _epsilon(names))


def _layer_norm_example(b: relax.BlockBuilder, x: relax.Var, over: int = -1) -> relax.Expr:
    centred = b.emit(op.subtract(x, b.emit(op.mean(x, -1, keepdims=True))))
    variance = b.emit(op.mean(b.emit(op.power(centred, relax.const(np.float32(2)))), over, keepdims=True))
    return op.divide(centred, b.emit(op.sqrt(b.emit(op.add(variance, relax.const(np.float32(1e-5)))))))


LAYER_NORM = Rule(
    name="layer_norm",
    form="d = x - mean(x); d / sqrt(mean(d^2) + epsilon)  ->  layer_norm(x, 1, 0), or instance_norm over an image",
    source="ONNX Runtime's LayerNormFusion",
    assumes="nothing: the same two passes",
    roots=frozenset(("divide", "multiply")),
    match=matcher(Product(_DEVIATION, Power(Sum(_VARIANCE, number="epsilon"), -0.5))),
    build=_layer_norm,
    example=Example(_layer_norm_example, ((3, 4, 40),)),
    near_miss=Example(lambda b, x: _layer_norm_example(b, x, 1), ((3, 4, 40),)),
    declines="over other axes",
)


def _rms_norm(emit: Emit, root: Value, names: Names) -> relax.Expr:
    value, axes = names["x"], _axes(names["mean"])
    if axes != [len(value.shape) - 1]:
        raise Declined(f"the mean runs over axes {axes}, not over the last")
    return op.nn.rms_norm(value.expr, constant(np.ones(value.shape[-1:], value.dtype)), axes, _epsilon(names))


def _rms_norm_example(b: relax.BlockBuilder, x: relax.Var, axis: int = -1) -> relax.Expr:
    square = b.emit(op.mean(b.emit(op.power(x, relax.const(np.float32(2)))), axis, keepdims=True))
    root = b.emit(op.sqrt(b.emit(op.add(square, relax.const(np.float32(1e-6))))))
    return op.multiply(x, b.emit(op.divide(relax.const(np.float32(1)), root)))


RMS_NORM = Rule(
    name="rms_norm",
    form="x / sqrt(mean(x^2) + epsilon)  ->  rms_norm(x, 1)",
    source="ONNX Runtime's SimplifiedLayerNormFusion",
    assumes="nothing: the same pass",
    roots=frozenset(("divide", "multiply")),
    match=matcher(Product(_X, Power(Sum(_MEAN_SQUARE, number="epsilon"), -0.5))),
    build=_rms_norm,
    example=Example(_rms_norm_example, ((3, 4, 40),)),
    near_miss=Example(lambda b, x: _rms_norm_example(b, x, 1), ((3, 4, 40),)),
    declines="not over the last",
)


def _group_norm(emit: Emit, root: Value, names: Names) -> relax.Expr:
    norm, value = names["norm"], names["x"]
    batch, channels, *space = value.shape
    groups = norm.shape[1]
    together = len(norm.shape) == 3 and norm.shape[0] == batch and channels % groups == 0
    if value.shape != root.shape or not space or not together or list(map(int, norm.attrs.axes)) != [2]:
        raise Declined("its rows are no groups of channels")
    scale, shift = (constant(np.repeat(names[name].array, channels // groups)) for name in ("gamma", "beta"))
    axes = list(range(2, len(value.shape)))
    return op.nn.group_norm(value.expr, scale, shift, groups, 1, axes, float(norm.attrs.epsilon))


def _group_norm_example(b: relax.BlockBuilder, x: relax.Var, batch: int = 2) -> relax.Expr:
    rows = b.emit(op.reshape(x, (batch, 3, -1)))
    scale, shift = (relax.const(np.array(numbers, "float32")) for numbers in ([1, 2, 1], [0, 1, 0]))
    return op.reshape(b.emit(op.nn.instance_norm(rows, scale, shift, 1, [2])), (2, 6, 5, 4))


GROUP_NORM = Rule(
    name="group_norm",
    form="reshape(instance_norm(reshape(x, [n, groups, -1])), x's shape)  ->  group_norm(x)",
    source="how PyTorch exports GroupNorm; ONNX Runtime's GroupNormFusion",
    assumes="nothing",
    roots=frozenset(("reshape",)),
    match=matcher(
        Is("reshape", Is("nn.instance_norm", Is("reshape", _X), Weight("gamma"), Weight("beta"), name="norm"))
    ),
    build=_group_norm,
    example=Example(_group_norm_example, ((2, 6, 5, 4),)),
    near_miss=Example(lambda b, x: _group_norm_example(b, x, 4), ((2, 6, 5, 4),)),
    declines="no groups of channels",
)
