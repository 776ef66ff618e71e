"""Operators along axes: reductions, prefixes, the largest elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backends.to_onnx.call import Convert, ExportedCall, axes_of, dtype_of, node, shape_of


def _reduce(operator: str) -> Convert:
    def convert(site: ExportedCall) -> str:
        return reduced(site, operator, site.inputs[0], site.attr("axis"), site.attr("keepdims"))

    return convert


def reduced(
    site: ExportedCall, operator: str, value: str, axes: tuple[int, ...] | list[int] | None, keepdims: bool
) -> str:
    """Return `value` with one element along each of `axes`, all for None."""
    given = [] if axes is None else [site.ints(axes)]
    nothing = 1 if axes is not None and not axes else None
    return site.emit(operator, value, *given, keepdims=int(keepdims), noop_with_empty_axes=nothing)


def variance(site: ExportedCall, value: str, axes: tuple[int, ...] | list[int] | None, keepdims: bool) -> str:
    """Return the mean of squares of what differs from the mean."""
    apart = site.emit("Sub", value, reduced(site, "ReduceMean", value, axes, True))
    return reduced(site, "ReduceMean", site.emit("Mul", apart, apart), axes, keepdims)


def _variance(site: ExportedCall) -> str:
    return variance(site, site.inputs[0], site.attr("axis"), site.attr("keepdims"))


def _deviation(site: ExportedCall) -> str:
    return site.emit("Sqrt", _variance(site))


def _place(operator: str) -> Convert:
    """Return what writes argmax or argmin; over no axis in particular, the place in all elements."""

    def convert(site: ExportedCall) -> str:
        (x,), axis = site.inputs, site.attr("axis")
        if axis is not None:
            return _as_result(site, site.emit(operator, x, axis=axis, keepdims=int(site.attr("keepdims"))))
        place = site.emit(operator, site.reshape(x, [-1]), axis=0, keepdims=0)
        return _as_result(site, site.reshape(place, shape_of(site.result)))

    return convert


def _as_result(site: ExportedCall, places: str) -> str:
    dtype = dtype_of(site.result)
    return places if dtype == "int64" else site.cast(places, dtype)


def _cumsum(site: ExportedCall) -> str:
    (x,), axis, dtype = site.inputs, site.attr("axis"), dtype_of(site.result)
    if dtype != site.dtype(0):
        x = site.cast(x, dtype)
    if axis is None:
        x, axis = site.reshape(x, [-1]), 0
    return site.emit("CumSum", x, site.scalar(axis, "int64"), exclusive=int(bool(site.attr("exclusive"))))


def _topk(site: ExportedCall) -> Sequence[str]:
    both = site.emit_several(
        "TopK", [site.inputs[0], site.ints([site.attr("k")])], 2,
        axis=site.attr("axis"), largest=int(site.attr("largest")),
    )  # fmt: skip
    kind, dtype = site.attr("ret_type"), site.attr("dtype")
    values, places = both[0], both[1] if dtype == "int64" or kind == "values" else site.cast(both[1], dtype)
    return {"both": [values, places], "values": [values], "indices": [places]}[kind]


def _sorted(field: int) -> Convert:
    """Return what writes a sort, or the places in it, as that of all largest or smallest."""

    def convert(site: ExportedCall) -> str:
        (axis,) = axes_of(site.attr("axis"), site.rank(0))
        count = site.ints([site.shape(0)[axis]])
        found = site.emit_several(
            "TopK", [site.inputs[0], count], 2, axis=axis, largest=int(site.attr("descending"))
        )  # fmt: skip
        return _as_result(site, found[1]) if field else found[0]

    return convert


REDUCTIONS: Mapping[str, Convert] = {
    "argmax": _place("ArgMax"),
    "argmin": _place("ArgMin"),
    "argsort": _sorted(1),
    "cumsum": _cumsum,
    "max": _reduce("ReduceMax"),
    "mean": _reduce("ReduceMean"),
    "min": _reduce("ReduceMin"),
    "nn.log_softmax": node("LogSoftmax", {"axis": "axis"}),
    "nn.softmax": node("Softmax", {"axis": "axis"}),
    "prod": _reduce("ReduceProd"),
    "sort": _sorted(0),
    "std": _deviation,
    "sum": _reduce("ReduceSum"),
    "topk": _topk,
    "variance": _variance,
}
