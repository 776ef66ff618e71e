"""Normalizations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backends.to_onnx.call import Convert, ExportedCall, axes_of
from backends.to_onnx.operators.reductions import reduced, variance


def _layer_norm(site: ExportedCall) -> str:
    axes = axes_of(site.attr("axes"), site.rank(0))
    if axes == list(range(axes[0], site.rank(0))) and site.attr("center") and site.attr("scale"):
        return site.emit("LayerNormalization", *site.inputs, axis=axes[0], epsilon=site.attr("epsilon"))
    return _scaled(site, _normalized(site, site.inputs[0], axes), axes)


def _rms_norm(site: ExportedCall) -> str:
    (x, weight), axes = site.inputs, axes_of(site.attr("axes"), site.rank(0))
    squares = reduced(site, "ReduceMean", site.emit("Mul", x, x), axes, True)
    scaled = site.emit("Div", x, site.emit("Sqrt", _with_epsilon(site, squares)))
    return site.emit("Mul", scaled, site.reshape(weight, _places(site, axes)))


def _group_norm(site: ExportedCall) -> str:
    """Groups of channels as the channels of an image of one axis, whose places are normalised."""
    rank, shape = site.rank(0), site.shape(0)
    (channel,), axes = axes_of(site.attr("channel_axis"), rank), axes_of(site.attr("axes"), rank)
    groups = site.attr("num_groups")
    split = [*shape[:channel], groups, shape[channel] // groups, *shape[channel + 1 :]]
    inner = [channel + 1, *(axis + 1 if axis > channel else axis for axis in axes if axis != channel)]
    apart = _normalized(site, site.reshape(site.inputs[0], split), inner)
    return _scaled(site, site.reshape(apart, shape), [channel])


def _instance_norm(site: ExportedCall) -> str:
    rank = site.rank(0)
    (channel,), axes = axes_of(site.attr("channel_axis"), rank), axes_of(site.attr("axes"), rank)
    if channel == 1 and axes == list(range(2, rank)) and site.attr("center") and site.attr("scale"):
        return site.emit("InstanceNormalization", *site.inputs, epsilon=site.attr("epsilon"))
    return _scaled(site, _normalized(site, site.inputs[0], axes), [channel])


def _batch_norm(site: ExportedCall) -> list[str]:
    """With the statistics that it is given, as in inference; those come out as they were."""
    x, _, _, mean, spread = site.inputs
    axis = site.attr("axis") % site.rank(0)
    if axis == 1 and site.attr("center") and site.attr("scale"):
        normal = site.emit("BatchNormalization", *site.inputs, epsilon=site.attr("epsilon"))
        return [normal, mean, spread]
    places = _places(site, [axis])
    apart = site.emit("Sub", x, site.reshape(mean, places))
    deviation = site.emit("Sqrt", _with_epsilon(site, site.reshape(spread, places)))
    normal = _scaled(site, site.emit("Div", apart, deviation), [axis])
    return [normal, mean, spread]


def _normalized(site: ExportedCall, x: str, axes: Sequence[int]) -> str:
    apart = site.emit("Sub", x, reduced(site, "ReduceMean", x, list(axes), True))
    return site.emit("Div", apart, site.emit("Sqrt", _with_epsilon(site, variance(site, x, list(axes), True))))


def _with_epsilon(site: ExportedCall, value: str) -> str:
    return site.emit("Add", value, site.scalar(site.attr("epsilon"), site.dtype(0)))


def _scaled(site: ExportedCall, value: str, axes: Sequence[int]) -> str:
    """Return `value` times gamma plus beta, the operands behind the data, which lie along `axes`."""
    gamma, beta = site.inputs[1:3]
    places = _places(site, axes)
    if site.attr("scale"):
        value = site.emit("Mul", value, site.reshape(gamma, places))
    return site.emit("Add", value, site.reshape(beta, places)) if site.attr("center") else value


def _places(site: ExportedCall, axes: Sequence[int]) -> list[int]:
    """Return the shape under which what lies along `axes` meets the data."""
    return [size if axis in axes else 1 for axis, size in enumerate(site.shape(0))]


NORMALIZATION: Mapping[str, Convert] = {
    "nn.batch_norm": _batch_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
}
