"""Slices and pads."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import converts
from fusion.frontends.onnx.weights import constant
from fusion.guards.check import check
from fusion.guards.kinds import size_guard


@converts("Slice")
def slice_(node: Node) -> Expr:
    """Bounds are clamped here, as numpy does, so that a later pass sees plain numbers."""
    if any(node.has(index) and not node.is_const(index) for index in range(1, 5)):
        return _slice_at_run_time(node)
    shape = node.shape(0)
    starts, ends = node.ints(1, "starts"), node.ints(2, "ends")
    if starts is None or ends is None:
        raise Declined("starts or ends are missing")
    axes = [axis % len(shape) for axis in node.ints(3, "axes") or range(len(starts))]
    steps = node.ints(4, "steps") or [1] * len(starts)
    bounds = [
        slice(start, end, step).indices(shape[axis])
        for start, end, step, axis in zip(starts, ends, steps, axes, strict=True)
    ]
    if node.out_shape() == shape and all(step > 0 for step in steps):
        return node.x(0)
    # A backward slice that reaches the first element ends at -1, which strided_slice reads as the last one.
    begins, stops = (
        [b for b, _, _ in bounds],
        [e if e >= 0 else -shape[a] - 1 for (_, e, _), a in zip(bounds, axes, strict=True)],
    )
    return relax.op.strided_slice(node.x(0), axes, begins, stops, steps)


def _slice_at_run_time(node: Node) -> Expr:
    """Take `start + step * (0, 1, ...)` along every axis, as many as the output's static shape says.

    The run fails where start, end and step mean another number of entries.
    """
    x, shape, target = node.x(0), node.shape(0), node.out_shape()
    count = node.shape(1)[0]
    starts, ends = _int64(node, 1, np.zeros(count)), _int64(node, 2, np.zeros(count))
    steps, axes = _int64(node, 4, np.ones(count)), _int64(node, 3, np.arange(count))
    rank = _number(len(shape))
    axes = node.emit(relax.op.where(relax.op.less(axes, _number(0)), relax.op.add(axes, rank), axes))
    for axis, size in enumerate(shape):
        here = node.emit(relax.op.astype(relax.op.equal(axes, _number(axis)), "int64"))
        named = node.emit(relax.op.sum(here))

        def given(values: Expr, default: int, here: Expr = here, named: Expr = named) -> Expr:
            """Return what the one entry that names the axis says, or a default."""
            rest = relax.op.multiply(relax.op.subtract(_number(1), named), _number(default))
            return node.emit(relax.op.add(relax.op.sum(relax.op.multiply(here, values)), rest))

        start, end, step = given(starts, 0), given(ends, size), given(steps, 1)
        first, entries = _extent(node, start, end, step, size)
        entries = node.emit(check(node.builder, entries, size_guard(node.where, axis, target[axis])))
        counted = relax.const(np.arange(target[axis]), "int64")
        places = relax.op.add(first, relax.op.multiply(counted, step))
        # Nothing is added, but now no place is known before the number of entries is.
        places = relax.op.add(places, relax.op.subtract(entries, _number(target[axis])))
        x = node.emit(relax.op.take(x, node.emit(places), axis))
    return x


def _extent(node: Node, start: Expr, end: Expr, step: Expr, size: int) -> tuple[Expr, Expr]:
    """Return the first entry of `[start:end:step]` along an axis of `size`, and how many there are, as numpy counts."""
    backwards = node.emit(relax.op.less(step, _number(0)))
    low = relax.op.where(backwards, _number(-1), _number(0))
    high = relax.op.where(backwards, _number(size - 1), _number(size))
    bounds = []
    for bound in (start, end):
        wrapped = relax.op.where(relax.op.less(bound, _number(0)), relax.op.add(bound, _number(size)), bound)
        bounds.append(node.emit(relax.op.minimum(relax.op.maximum(wrapped, low), high)))
    # Rounded up: the negative of what is rounded down.
    steps = relax.op.negative(relax.op.floor_divide(relax.op.subtract(bounds[0], bounds[1]), step))
    return bounds[0], node.emit(relax.op.maximum(steps, _number(0)))


def _number(value: int) -> Expr:
    return relax.const(value, "int64")


def _int64(node: Node, index: int, default: np.ndarray) -> Expr:
    if not node.has(index):
        return relax.const(default.astype("int64"), "int64")
    return node.x(index) if node.dtype(index) == "int64" else relax.op.astype(node.x(index), "int64")


@converts("Pad")
def pad(node: Node) -> Expr:
    shape = node.shape(0)
    before, after = _pads(node)
    mode = node.attr("mode", "constant")
    if mode == "constant" and any(b < 0 for b in before + after):
        raise Declined("negative pads")
    if not any(before + after):
        return node.x(0)
    widths = [int(width) for pair in zip(before, after, strict=True) for width in pair]
    if 0 in shape:
        if mode != "constant" or node.dtype(0) == "bfloat16":
            raise Declined("pad of an empty tensor")
        return constant(np.full(node.out_shape(), _pad_value(node)).astype(node.dtype(0)))
    if mode == "constant" and node.dtype(0) == "bfloat16":
        wide = relax.op.nn.pad(relax.op.astype(node.x(0), "float32"), widths, "constant", _pad_value(node))
        return relax.op.astype(wide, "bfloat16")
    if mode == "constant":
        return relax.op.nn.pad(node.x(0), widths, "constant", _pad_value(node))
    if mode not in ("reflect", "edge", "wrap"):
        raise Declined(f"pad mode {mode}")
    return _pad_by_gather(node, before, after, mode)


def _pads(node: Node) -> tuple[list[int], list[int]]:
    rank = len(node.shape(0))
    pads = node.ints(1, "pads") or [0] * (2 * rank)
    axes = node.const(3)
    positions = list(range(rank)) if axes is None else [int(axis) % rank for axis in axes.reshape(-1)]
    before, after = [0] * rank, [0] * rank
    for index, axis in enumerate(positions):
        before[axis], after[axis] = pads[index], pads[index + len(positions)]
    return before, after


def _pad_value(node: Node) -> float:
    value = node.const(2)
    number = node.attr("value", 0.0) if value is None or not value.size else value.reshape(-1)[0]
    return float(number)


def _pad_by_gather(node: Node, before: list[int], after: list[int], mode: str) -> Expr:
    """Pad axis by axis: each output position takes the input position that numpy's `pad` gives it, which reflects again
    what lies beyond the other edge. Negative pads cut before the others repeat what is left, as in ONNX Runtime."""
    x = node.x(0)
    for axis, size in enumerate(node.shape(0)):
        if before[axis] or after[axis]:
            left = np.arange(max(-before[axis], 0), size - max(-after[axis], 0))
            widths = (max(before[axis], 0), max(after[axis], 0))
            indices: np.ndarray = np.pad(left, widths, mode=mode)  # type: ignore[call-overload]
            x = node.emit(relax.op.take(x, relax.const(indices.astype("int64"), "int64"), axis))
    return x
