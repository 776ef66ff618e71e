"""Elements at places that are data."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from backends.to_onnx.call import Convert, ExportedCall, dtype_of, node
from fusion.declined import Declined

_REDUCED_BY = {"update": None, "add": "add", "mul": "mul", "min": "min", "max": "max"}
_INDICES = ("int32", "int64")


def _places(site: ExportedCall, position: int, *, wide: bool = False) -> str:
    """Return an input of indices in a dtype that ONNX takes."""
    taken = _INDICES[1:] if wide else _INDICES
    return site.inputs[position] if site.dtype(position) in taken else site.cast(site.inputs[position], "int64")


def _take(site: ExportedCall) -> str:
    axis, mode, places = site.attr("axis") or 0, site.attr("mode"), _places(site, 1)
    if mode == "clip":
        dtype = site.dtype(1) if site.dtype(1) in _INDICES else "int64"
        places = site.emit("Clip", places, site.scalar(0, dtype), site.scalar(site.shape(0)[axis] - 1, dtype))
    elif mode != "fast":
        raise Declined(f"ONNX takes by no {mode!r}")
    return site.emit("Gather", site.inputs[0], places, axis=axis)


def _gather_elements(site: ExportedCall) -> str:
    return site.emit("GatherElements", site.inputs[0], _places(site, 1), axis=site.attr("axis"))


def _gather_nd(site: ExportedCall) -> str:
    return site.emit("GatherND", site.inputs[0], _places(site, 1, wide=True), batch_dims=site.attr("batch_dims"))


def _scatter_elements(site: ExportedCall) -> str:
    places = _places(site, 1)
    return site.emit(
        "ScatterElements", site.inputs[0], places, site.inputs[2], axis=site.attr("axis"), reduction=_reduction(site)
    )


def _scatter_nd(site: ExportedCall) -> str:
    places = _places(site, 1, wide=True)
    return site.emit("ScatterND", site.inputs[0], places, site.inputs[2], reduction=_reduction(site))


def _reduction(site: ExportedCall) -> str | None:
    found = site.attr("reduction")
    if found not in _REDUCED_BY:
        raise Declined(f"ONNX scatters by no {found!r}")
    return _REDUCED_BY[found]


def _one_hot(site: ExportedCall) -> str:
    dtype = dtype_of(site.result)
    ends = np.asarray([site.number(2), site.number(1)]).astype(dtype)
    depth = site.scalar(site.attr("depth"), "int64")
    return site.emit("OneHot", _places(site, 0), depth, site.graph.constant(ends, "off_and_on"), axis=site.attr("axis"))


def _reverse_sequence(site: ExportedCall) -> str:
    axes = {"batch_axis": site.attr("batch_axis"), "time_axis": site.attr("seq_axis")}
    return site.emit("ReverseSequence", site.inputs[0], _places(site, 1, wide=True), **axes)


INDEXING: Mapping[str, Convert] = {
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "nonzero": node("NonZero"),
    "one_hot": _one_hot,
    "reverse_sequence": _reverse_sequence,
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "take": _take,
}
