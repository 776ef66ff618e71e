"""Parts of tensors between bounds that are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.relay.call import Call, dtype_of, shape_of
from fusion.frontends.relay.registry import translates


@translates("strided_slice")
def strided_slice(call: Call) -> Expr:
    return _strided_slice(call, call.ints("begin"), call.ints("end"), call.ints("strides"))


@translates("dyn.strided_slice")
def dynamic_strided_slice(call: Call) -> Expr:
    return _strided_slice(call, call.const_ints(1), call.const_ints(2), call.const_ints(3))


def _strided_slice(call: Call, begin: Sequence[int], end: Sequence[int], strides: Sequence[int]) -> Expr:
    shape, by_size = call.shape(0), call.text("slice_mode", "end") == "size"
    axes = [call.axis_of(axis) for axis in call.optional_ints("axes") or range(len(begin))]
    if len(axes) < len(begin) or len(end) > len(axes) or len(strides) > len(axes):
        raise Declined(f"begin, end and strides have {len(begin)}, {len(end)} and {len(strides)} entries")
    slices = [slice(0, extent) for extent in shape]
    for at, axis in enumerate(axes):
        step = strides[at] if at < len(strides) and not by_size else 1
        stop = end[at] if at < len(end) else None
        slices[axis] = _slice(shape[axis], begin[at], stop, step, by_size)
    return sliced(call.x(0), slices)


def _slice(size: int, begin: int, end: int | None, step: int, by_size: bool) -> slice:
    """Return the bounds within an axis of `size`; an `end` that is left out takes all but, backwards, the first."""
    if step == 0:
        raise Declined("a stride is 0")
    start = _bounded(begin, size, step)
    if end is None:
        stop = size if step > 0 else 0
    elif by_size:
        stop = size if end < 0 else min(start + end, size)
    else:
        stop = _bounded(end, size, step)
    return slice(start, stop, step)


def _bounded(index: int, size: int, step: int) -> int:
    """Return `index`, which may count from the end, within the axis; backwards, the end may lie before it, at -1."""
    low, high = (-1, size - 1) if step < 0 else (0, size)
    return min(max(index + size if index < 0 else index, low), high)


def positions(places: slice) -> range:
    """Return the positions that `places`, whose stop may be -1 for the one before the first, takes."""
    return range(places.start, places.stop, places.step or 1)


def sliced(x: Expr, slices: Sequence[slice]) -> Expr:
    """Return the part of `x` at `slices`, one for each axis, with bounds within it."""
    shape = shape_of(x)
    wanted = tuple(len(positions(places)) for places in slices)
    if 0 in wanted:
        return relax.op.zeros(wanted, dtype_of(x))
    axes = [axis for axis, size in enumerate(shape) if positions(slices[axis]) != range(size)]
    if not axes:
        return x
    # A stop before the first element is written as one that counts from the end.
    stops = [slices[axis].stop if slices[axis].stop >= 0 else -shape[axis] - 1 for axis in axes]
    steps = [slices[axis].step or 1 for axis in axes]
    return relax.op.strided_slice(x, axes, [slices[axis].start for axis in axes], stops, steps)


@translates("slice_like")
def slice_like(call: Call) -> Expr:
    """The front of operand 0, as large as operand 1 along `axes`, which by default are those that it has."""
    shape, like = call.shape(0), call.shape(1)
    given = call.optional_ints("axes")
    axes = [call.axis_of(axis) for axis in given] if given else list(range(min(len(shape), len(like))))
    if any(axis >= len(like) or like[axis] > shape[axis] for axis in axes):
        raise Declined(f"{like} is no front of {shape}")
    return sliced(call.x(0), [slice(0, like[at] if at in axes else extent) for at, extent in enumerate(shape)])


@translates("strided_set")
def strided_set(call: Call) -> Expr:
    """Operand 0 with operand 1 in place of the part that the constants `begin`, `end` and `strides` tell."""
    shape = call.shape(0)
    begin, end = call.const_ints(2), call.const_ints(3)
    strides = call.const_ints(4) if len(call.operands) > 4 else ()
    taken = []
    for axis, size in enumerate(shape):
        step = strides[axis] if axis < len(strides) else 1
        start = begin[axis] if axis < len(begin) else (0 if step > 0 else size)
        stop = end[axis] if axis < len(end) else (size if step > 0 else -size - 1)
        taken.append(positions(_slice(size, start, stop, step, False)))
    if call.shape(1) != tuple(map(len, taken)):
        raise Declined(f"{call.shape(1)} in place of {tuple(map(len, taken))}")
    if 0 in call.shape(1):
        return call.x(0)
    return _set(call, taken)


def _set(call: Call, taken: Sequence[range]) -> Expr:
    """Spread operand 1 over the shape of operand 0, axis by axis, and choose it at the positions `taken`."""
    shape, spread = call.shape(0), call.x(1)
    inside = np.ones((1,) * len(shape), bool)
    for axis, places in enumerate(taken):
        source = np.zeros(shape[axis], "int64")
        source[list(places)] = np.arange(len(places))
        spread = call.emit(relax.op.take(spread, constant(source), axis))
        here = np.isin(np.arange(shape[axis]), list(places))
        inside = inside & here.reshape([-1 if at == axis else 1 for at in range(len(shape))])
    return relax.op.where(constant(inside), spread, call.x(0))
