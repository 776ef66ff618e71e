"""Normalisations in two passes over cached rows: mean, then centred variance, then scale and shift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import relax, te, tirx, topi

from backends.tensorir.legalize.common import FLegalize, interleave, normalized_axes, reduce_axes, wide, wide_dtype
from fusion.bindings import data_of

Expr = Any
PerElement = Callable[..., Expr]


@dataclass(frozen=True)
class Statistics:
    """Which elements share a mean and a variance.

    Attributes:
        reduced: Axes that the statistics run over completely.
        channel: Axis that is cut into groups which also belong to the statistics; None where there are no groups.
        groups: Number of groups.
    """

    reduced: tuple[int, ...]
    channel: int | None = None
    groups: int = 1

    def shape(self, x: te.Tensor) -> list[Expr]:
        """Return the shape of the statistics."""
        kept = [axis for axis in range(len(x.shape)) if axis not in self.reduced]
        return [self.groups if axis == self.channel else x.shape[axis] for axis in kept]

    def count(self, x: te.Tensor) -> int:
        """Return how many elements share one mean."""
        elements = prod(int(x.shape[axis]) for axis in self.reduced)
        return elements * (int(x.shape[self.channel]) // self.groups if self.channel is not None else 1)

    def of(self, x: te.Tensor, indices: Sequence[Expr]) -> list[Expr]:
        """Return the index of the statistics of an element."""
        found = []
        for axis, index in enumerate(indices):
            if axis == self.channel:
                found.append(tirx.floordiv(index, int(x.shape[axis]) // self.groups))
            elif axis not in self.reduced:
                found.append(index)
        return found

    def mean(self, x: te.Tensor, value: PerElement, name: str) -> te.Tensor:
        """Return the sum of `value(*index)` over the elements that share statistics, divided by their number."""
        reduced = dict(zip(self.reduced, reduce_axes(x.shape, self.reduced), strict=True))
        within = []
        if self.channel is not None:
            per_group = int(x.shape[self.channel]) // self.groups
            within = [te.reduce_axis((0, per_group), "kc")]

        def total(*kept: Expr) -> Expr:
            index = interleave(len(x.shape), {axis: k.var for axis, k in reduced.items()}, kept)
            if self.channel is not None:
                index[self.channel] = index[self.channel] * per_group + within[0].var
            return te.sum(value(*index), axis=[*within, *reduced.values()])

        sums = te.compute(self.shape(x), total, f"{name}_sum")
        # Divided, not multiplied by the reciprocal: the mean of equal elements is that element.
        count = tirx.const(self.count(x), wide_dtype(x))
        return te.compute(sums.shape, lambda *i: sums(*i) / count, name)


def normalize(
    x: te.Tensor, statistics: Statistics, epsilon: float, affine: Callable[[Expr, Sequence[Expr]], Expr], centered: bool
) -> te.Tensor:
    """Return affine((x - mean) / sqrt(variance + epsilon)); without `centered` the mean stays (RMS norm)."""
    mean = statistics.mean(x, lambda *i: wide(x(*i)), "mean") if centered else None

    def deviation(*index: Expr) -> Expr:
        return wide(x(*index)) - mean(*statistics.of(x, index)) if mean is not None else wide(x(*index))

    variance = statistics.mean(x, lambda *i: deviation(*i) * deviation(*i), "variance")
    one, shift = tirx.const(1, wide_dtype(x)), tirx.const(epsilon, wide_dtype(x))
    scale = te.compute(variance.shape, lambda *i: one / tirx.sqrt(variance(*i) + shift), "inverse_deviation")

    def result(*i: Expr) -> Expr:
        return affine(deviation(*i) * scale(*statistics.of(x, i)), i).astype(x.dtype)

    return te.compute(x.shape, result, "normalized")


def layer_norm(x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, axes: list[int], epsilon: float) -> te.Tensor:
    """Normalise over `axes`; gamma and beta have the shape of those axes."""

    def affine(value: Expr, i: Sequence[Expr]) -> Expr:
        own = [i[axis] for axis in axes]
        return value * wide(gamma(*own)) + wide(beta(*own))

    return normalize(x, Statistics(tuple(axes)), epsilon, affine, centered=True)


def rms_norm(x: te.Tensor, weight: te.Tensor, axes: list[int], epsilon: float) -> te.Tensor:
    """Divide by the root of the mean square over `axes`."""

    def affine(value: Expr, i: Sequence[Expr]) -> Expr:
        return value * wide(weight(*[i[axis] for axis in axes]))

    return normalize(x, Statistics(tuple(axes)), epsilon, affine, centered=False)


def group_norm(
    x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, groups: int | None, channel: int, axes: list[int], epsilon: float
) -> te.Tensor:
    """Normalise over `axes` and the channels of a group; gamma and beta have one value per channel.

    `groups` None is instance norm: every channel for itself.
    """
    kind = Statistics(tuple(axes)) if groups is None else Statistics(tuple(axes), channel, groups)
    return normalize(
        x, kind, epsilon, lambda value, i: value * wide(gamma(i[channel])) + wide(beta(i[channel])), centered=True
    )


def batch_norm(
    x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, mean: te.Tensor, variance: te.Tensor, axis: int, epsilon: float
) -> list[te.Tensor]:
    """Inference form: scale and shift per channel, computed once per channel; the statistics pass through."""
    shift_by = tirx.const(epsilon, wide_dtype(variance))
    scale = te.compute(
        gamma.shape, lambda c: wide(gamma(c)) / tirx.sqrt(wide(variance(c)) + shift_by), "batch_norm_scale"
    )
    shift = te.compute(gamma.shape, lambda c: wide(beta(c)) - wide(mean(c)) * scale(c), "batch_norm_shift")
    out = te.compute(x.shape, lambda *i: (wide(x(*i)) * scale(i[axis]) + shift(i[axis])).astype(x.dtype), "batch_norm")
    return [out, topi.identity(mean), topi.identity(variance)]


def _layer_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    axes = normalized_axes(call.attrs.axes, len(data_of(call).ty.shape))
    return builder.call_te(layer_norm, *call.args, axes, float(call.attrs.epsilon), primfunc_name_hint="layer_norm")


def _rms_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    axes = normalized_axes(call.attrs.axes, len(data_of(call).ty.shape))
    return builder.call_te(rms_norm, *call.args, axes, float(call.attrs.epsilon), primfunc_name_hint="rms_norm")


def _group_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    rank = len(data_of(call).ty.shape)
    channel = int(call.attrs.channel_axis) % rank
    groups = int(call.attrs.num_groups) if call.op.name == "relax.nn.group_norm" else None
    axes = normalized_axes(call.attrs.axes, rank)
    epsilon = float(call.attrs.epsilon)
    return builder.call_te(group_norm, *call.args, groups, channel, axes, epsilon, primfunc_name_hint="group_norm")


def _batch_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    if call.attrs.training or not (call.attrs.center and call.attrs.scale):
        names = ("axis", "epsilon", "center", "scale", "training", "momentum")
        return builder.call_te(topi.nn.batch_norm, *call.args, **{name: getattr(call.attrs, name) for name in names})
    axis = int(call.attrs.axis) % len(data_of(call).ty.shape)
    return builder.call_te(batch_norm, *call.args, axis, float(call.attrs.epsilon), primfunc_name_hint="batch_norm")


NORMALIZATIONS: dict[str, FLegalize] = {
    "relax.nn.layer_norm": _layer_norm,
    "relax.nn.rms_norm": _rms_norm,
    "relax.nn.group_norm": _group_norm,
    "relax.nn.instance_norm": _group_norm,
    "relax.nn.batch_norm": _batch_norm,
}
