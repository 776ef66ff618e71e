"""Operators that only move elements."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from backends.to_onnx.call import Convert, ExportedCall, axes_of, node, shape_of
from fusion.declined import Declined

_PADDED_BY = {"constant": "constant", "edge": "edge", "replicate": "edge", "reflect": "reflect", "circular": "wrap"}


def _reshape(site: ExportedCall) -> str:
    return site.reshape(site.inputs[0], shape_of(site.result))


def _expand(site: ExportedCall) -> str:
    return site.emit("Expand", site.inputs[0], site.ints(shape_of(site.result)))


def _expand_dims(site: ExportedCall) -> str:
    return site.emit("Unsqueeze", site.inputs[0], site.ints(site.attr("axis")))


def _squeeze(site: ExportedCall) -> str:
    axes = site.attr("axis")
    return site.emit("Squeeze", site.inputs[0], *([] if axes is None else [site.ints(axes)]))


def _stack(site: ExportedCall) -> str:
    axis = site.attr("axis")
    parts = [site.emit("Unsqueeze", part, site.ints([axis])) for part in site.inputs]
    return site.emit("Concat", *parts, axis=axis)


def _split(site: ExportedCall) -> list[str]:
    """Sections or the places where one ends: the sizes of the results have both."""
    axis = site.attr("axis")
    sizes = [shape_of(field)[axis] for field in site.result.fields]
    return site.emit_several("Split", [site.inputs[0], site.ints(sizes)], len(sizes), axis=axis)


def _slice(site: ExportedCall) -> str:
    axes, begins, ends = (site.numbers(at) for at in (1, 2, 3))
    steps = site.numbers(4) if len(site.call.args) > 4 else [1] * len(axes)
    return site.emit("Slice", site.inputs[0], *(site.ints(numbers) for numbers in (begins, ends, axes, steps)))


def _flip(site: ExportedCall) -> str:
    from_last, beyond_first = site.ints([-1]), site.ints([np.iinfo(np.int64).min])
    return site.emit("Slice", site.inputs[0], from_last, beyond_first, site.ints([site.attr("axis")]), from_last)


def _tile(site: ExportedCall) -> str:
    (x,), repeats, shape = site.inputs, list(site.attr("repeats")), list(site.shape(0))
    if len(repeats) > len(shape):
        x = site.reshape(x, [1] * (len(repeats) - len(shape)) + shape)
    return site.emit("Tile", x, site.ints([1] * (len(shape) - len(repeats)) + repeats))


def _repeat(site: ExportedCall) -> str:
    """Each element of an axis several times: what is gathered at 0, 0, 1, 1, ..."""
    (x,), axis = site.inputs, site.attr("axis")
    shape = site.shape(0)
    if axis is None:
        x, axis, shape = site.reshape(x, [-1]), 0, (int(np.prod(shape)),)
    places = np.repeat(np.arange(shape[axis]), site.attr("repeats"))
    return site.emit("Gather", x, site.ints(places.tolist()), axis=axis)


def _pad(site: ExportedCall) -> str:
    """Relax has both ends of an axis beside each other, ONNX all first ends before the last ones."""
    mode, widths = site.attr("pad_mode"), site.attr("pad_width")
    if mode not in _PADDED_BY:
        raise Declined(f"ONNX pads by no {mode!r}")
    value = site.scalar(site.attr("pad_value"), site.dtype(0))
    filling = [value] if mode == "constant" else []
    return site.emit("Pad", site.inputs[0], site.ints([*widths[::2], *widths[1::2]]), *filling, mode=_PADDED_BY[mode])


def _permute(site: ExportedCall) -> str:
    axes, rank = site.attr("axes"), site.rank(0)
    order = range(rank)[::-1] if axes is None else [axis % rank for axis in axes]
    return site.emit("Transpose", site.inputs[0], perm=list(order))


def _triangle(upper: int) -> Convert:
    def convert(site: ExportedCall) -> str:
        return site.emit("Trilu", site.inputs[0], site.scalar(site.number(1), "int64"), upper=upper)

    return convert


def _meshgrid(site: ExportedCall) -> list[str]:
    indexing = getattr(site.call.attrs, "indexing", "ij")
    if indexing not in (None, "ij"):
        raise Declined(f"the order of axes is {indexing!r}")
    shapes = [shape_of(field) for field in site.result.fields]
    return [
        site.emit("Expand", site.reshape(x, [shape[at] if axis == at else 1 for axis in range(len(shape))]),
                  site.ints(shape))
        for at, (x, shape) in enumerate(zip(site.inputs, shapes, strict=True))
    ]  # fmt: skip


def _slice_scatter(site: ExportedCall) -> str:
    """Elements of a slice along an axis replaced: those in it are gathered from the new ones, the others kept."""
    x, new = site.inputs
    start, end, step = (int(site.number(at)) for at in (2, 3, 4))
    shape = site.shape(0)
    (axis,) = axes_of(site.attr("axis"), len(shape))
    places = range(shape[axis])[start:end:step]
    index = np.zeros(site.shape(1), np.int64) + np.asarray(places, np.int64).reshape(
        [-1 if at == axis else 1 for at in range(len(shape))]
    )
    return site.emit("ScatterElements", x, site.graph.constant(index, "places"), new, axis=axis)


MOVEMENT: Mapping[str, Convert] = {
    **dict.fromkeys(("reshape", "flatten", "nn.batch_flatten"), _reshape),
    "broadcast_to": _expand,
    "concat": node("Concat", {"axis": "axis"}),
    "expand_dims": _expand_dims,
    "flip": _flip,
    "meshgrid": _meshgrid,
    "nn.pad": _pad,
    "permute_dims": _permute,
    "repeat": _repeat,
    "slice_scatter": _slice_scatter,
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "strided_slice": _slice,
    "tile": _tile,
    "tril": _triangle(0),
    "triu": _triangle(1),
}
