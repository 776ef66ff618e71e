"""Operators that take indices, counts and masks at run time."""

from __future__ import annotations

from math import prod

import numpy as np

from tests.fuzz.draw import Draw, Shape
from tests.fuzz.operators.rows import row


def indices(d: Draw, extent: int, shape: Shape) -> np.ndarray:
    """Return indices into `extent` elements, some counted from the end."""
    low = -extent if d.schema.since_version >= 11 and d.chance(0.4) else 0
    return d.rng.integers(low, max(extent, 1), shape)


@row("Gather")
def _gather(d: Draw) -> None:
    shape = d.main(1, 4, 1)
    axis = d.axis(len(shape))
    d.given(1, indices(d, shape[axis], d.shape(0, 2)))
    d.set("axis", axis, always=axis != 0)


@row("GatherElements")
def _gather_elements(d: Draw) -> None:
    shape = d.main(1, 4, 1)
    axis = d.axis(len(shape))
    part = tuple(d.number(1, extent) for extent in shape)
    d.given(1, indices(d, shape[axis], part))
    d.set("axis", axis, always=axis != 0)


@row("ScatterElements", "Scatter")
def _scatter_elements(d: Draw) -> None:
    shape = d.main(1, 4, 1)
    axis = d.axis(len(shape)) if d.schema.name != "Scatter" else d.number(0, len(shape) - 1)
    part = list(d.number(1, extent) for extent in shape)
    reduction = d.pick(("none", "add", "mul", "max", "min")) if d.has("reduction") else "none"
    places = (
        d.rng.integers(-shape[axis], shape[axis], part)
        if d.schema.since_version >= 11
        else d.rng.integers(0, shape[axis], part)
    )
    if reduction == "none":  # which of two writes to one place is last is left open
        order = np.argsort(
            d.rng.random((*part[: axis % len(shape)], shape[axis], *part[axis % len(shape) + 1 :])), axis=axis
        )
        places = np.take(order, range(part[axis]), axis=axis)
    d.given(1, places)
    d.input(2, tuple(part))
    d.set("axis", axis, always=axis != 0)
    if reduction != "none":
        d.set("reduction", reduction, always=True)


def _tuples(d: Draw, shape: Shape, depth: int, batch: Shape = ()) -> np.ndarray:
    """Return indices of elements or slices of `shape`, along its first `depth` axes."""
    head = (*batch, *d.shape(1, 2, 1)) if not batch or d.chance(0.5) else batch
    parts = [indices(d, extent, head) for extent in shape[:depth]]
    return np.stack(parts, axis=-1) if parts else np.zeros((*head, 0), np.int64)


@row("GatherND")
def _gather_nd(d: Draw) -> None:
    shape = d.main(1, 4, 1)
    batch = d.number(0, len(shape) - 1) if d.has("batch_dims") and d.chance(0.4) else 0
    depth = d.number(0, len(shape) - batch)
    d.given(1, _tuples(d, shape[batch:], depth, shape[:batch]))
    d.set("batch_dims", batch, always=batch != 0)


@row("ScatterND")
def _scatter_nd(d: Draw) -> None:
    shape = d.main(1, 4, 1)
    depth = d.number(1, len(shape))
    reduction = d.pick(("none", "add", "mul", "max", "min")) if d.has("reduction") else "none"
    places = _tuples(d, shape, depth)
    if reduction == "none":  # each place once
        count = d.number(1, prod(shape[:depth]))
        flat = d.rng.permutation(prod(shape[:depth]))[:count]
        places = np.stack(np.unravel_index(flat, shape[:depth]), axis=-1)
    d.given(1, places)
    d.input(2, (*places.shape[:-1], *shape[depth:]))
    if reduction != "none":
        d.set("reduction", reduction, always=True)


@row("TensorScatter")
def _tensor_scatter(d: Draw) -> None:
    batch, most, width = d.number(1, 3), d.size(3, 9), d.size(1, 5)
    length = d.number(1, most)
    d.input(0, (batch, 2, most, width))
    d.input(1, (batch, 2, length, width))
    mode = d.pick(("linear", "circular"))
    if d.chance(0.7):
        d.given(2, d.rng.integers(0, most - length + 1 if mode == "linear" else 3 * most, batch))
    d.set("mode", mode, always=mode == "circular")
    d.set("axis", -2)


@row("OneHot")
def _one_hot(d: Draw) -> None:
    depth = d.size(1, 9)
    shape = d.shape(1, 3)
    for variable, dtype in (("T1", "int64"), ("T2", "int64"), ("T3", "float32")):  # few others have a kernel
        if d.chance(0.7):
            d.bind(variable, dtype)
    d.given(0, d.rng.integers(0, depth, shape))
    d.given(1, np.array(depth) if d.chance(0.7) else np.array([depth]))
    d.input(2, (2,))
    d.set("axis", d.number(-len(shape) - 1, len(shape)))


@row("Compress")
def _compress(d: Draw) -> None:
    shape = d.main(1, 4)
    axis = d.axis(len(shape)) if d.schema.since_version >= 11 else d.number(0, len(shape) - 1)
    along = d.chance(0.6)
    d.input(1, (d.number(0, shape[axis] if along else prod(shape)),))
    if along:
        d.set("axis", axis, always=True)


@row("NonZero")
def _nonzero(d: Draw) -> None:
    d.main(0, 4, among="few")


@row("TopK")
def _topk(d: Draw) -> None:
    shape = d.main(1, 4, 1, among=d.pick(("any", "few")))
    axis = d.axis(len(shape)) if d.schema.since_version >= 11 else d.number(0, len(shape) - 1)
    d.set("k", d.number(0 if d.schema.since_version >= 10 and d.odd else 1, shape[axis]) if "k" in d.schema.attributes
          else np.array([d.number(1, shape[axis])]), always=True)  # fmt: skip
    if not d.has("k"):
        d.given(1, np.array([d.number(1, shape[axis])]))
    d.set("axis", axis, always=True)
    d.set("largest", d.number(0, 1))
    d.set("sorted", 1)
    d.outputs = 2


@row("Unique")
def _unique(d: Draw) -> None:
    shape = d.main(1, 3, among="few")
    if d.chance(0.5):
        d.set("axis", d.axis(len(shape)), always=True)
    d.set("sorted", d.number(0, 1))
    d.outputs = d.number(1, 4)


@row("ReverseSequence")
def _reverse_sequence(d: Draw) -> None:
    shape = d.main(2, 4, 1)
    batch = d.number(0, 1)
    d.given(1, d.rng.integers(1, shape[1 - batch] + 1, shape[batch]))
    d.set("batch_axis", batch, always=True)
    d.set("time_axis", 1 - batch, always=True)


@row("NonMaxSuppression")
def _nms(d: Draw) -> None:
    batch, boxes, classes = d.number(1, 2), d.size(1, 17), d.number(1, 3)
    corners = d.rng.random((batch, boxes, 2, 2)) * 10
    d.given(0, np.concatenate([corners.min(2), corners.max(2)], axis=-1))
    d.input(1, (batch, classes, boxes), "unit")
    for position, value in ((2, np.array([d.number(1, 5)])), (3, np.array([0.3])), (4, np.array([0.2]))):
        if d.chance(0.8) or position == 2:
            d.given(position, value)
    d.set("center_point_box", d.number(0, 1))


@row("MaxUnpool")
def _unpool(d: Draw) -> None:
    shape = (d.number(1, 2), d.number(1, 3), d.size(1, 5), d.size(1, 5))
    d.input(0, shape)
    total = shape[0] * shape[1] * shape[2] * 2 * shape[3] * 2
    d.given(1, d.rng.permutation(total)[: prod(shape)].reshape(shape))
    d.set("kernel_shape", [2, 2], always=True)
    d.set("strides", [2, 2], always=True)
