"""Operators that join, cut or repeat tensors."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.relay.call import Call, shape_of
from fusion.frontends.relay.ops.reshape import permuted, reshaped
from fusion.frontends.relay.ops.slicing import sliced
from fusion.frontends.relay.registry import translates


@translates("concatenate")
def concatenate(call: Call) -> Expr:
    fields = call.fields(0)
    axis = call.axis("axis", 0, len(shape_of(fields[0])))
    parts = [field for field in fields if shape_of(field)[axis] != 0]
    if not parts:
        return fields[0]
    return parts[0] if len(parts) == 1 else relax.op.concat(parts, axis)


@translates("stack")
def stack(call: Call) -> Expr:
    fields = call.fields(0)
    shape = shape_of(fields[0])
    axis = call.axis("axis", 0, len(shape) + 1)
    parts = [relax.op.reshape(field, (*shape[:axis], 1, *shape[axis:])) for field in fields]
    return parts[0] if len(parts) == 1 else relax.op.concat([call.emit(part) for part in parts], axis)


@translates("split")
def split(call: Call) -> list[Expr]:
    """Into as many equal parts as the number says, or at the places that the list says."""
    axis, size = call.axis("axis", 0), call.shape(0)[call.axis("axis", 0)]
    given = call.value("indices_or_sections")
    if isinstance(given, tuple):
        places = list(call.ints("indices_or_sections"))
    else:
        sections = call.integer("indices_or_sections", 1)
        if sections < 1 or size % sections:
            raise Declined(f"axis {axis} of size {size} does not split into {sections} equal parts")
        places = [size // sections * at for at in range(1, sections)]
    bounds = [0, *places, size]
    if bounds != sorted(bounds):
        raise Declined(f"the places {places} are not ascending within {size}")
    if not places:
        return [call.x(0)]
    if len(set(bounds)) < len(bounds):
        return [_part(call, axis, start, stop) for start, stop in pairwise(bounds)]
    parts = call.emit(relax.op.split(call.x(0), places, axis))
    return [relax.TupleGetItem(parts, index) for index in range(len(bounds) - 1)]


def _part(call: Call, axis: int, start: int, stop: int) -> Expr:
    slices = [slice(0, extent) for extent in call.shape(0)]
    slices[axis] = slice(start, stop)
    return sliced(call.x(0), slices)


@translates("tile")
def tile(call: Call) -> Expr:
    return relax.op.tile(call.x(0), list(call.ints("reps")))


@translates("dyn.tile")
def dynamic_tile(call: Call) -> Expr:
    return relax.op.tile(call.x(0), list(call.const_ints(1)))


@translates("repeat")
def repeat(call: Call) -> Expr:
    """Each element `repeats` times in a row; without an axis, those of the flattened operand."""
    axis = call.optional_integer("axis")
    x = call.emit(reshaped(call.x(0), (math.prod(call.shape(0)),))) if axis is None else call.x(0)
    return relax.op.repeat(x, call.integer("repeats", 1), 0 if axis is None else call.axis_of(axis))


@translates("reverse")
def reverse(call: Call) -> Expr:
    return relax.op.flip(call.x(0), call.axis("axis", 0))


@translates("reverse_sequence")
def reverse_sequence(call: Call) -> Expr:
    """The first elements of each sequence, as many as `seq_lengths` says, backwards."""
    axis, batch = call.axis("seq_axis", 1), call.axis("batch_axis", 0)
    if call.shape(1) != (call.shape(0)[batch],):
        raise Declined(f"{call.shape(1)} lengths of {call.shape(0)[batch]} sequences")
    return relax.op.reverse_sequence(call.x(0), call.x(1), axis, batch)


@translates("sliding_window")
def sliding_window(call: Call) -> Expr:
    """The windows over the axes from `axis` on: their places are axes, followed by those within a window."""
    shape, first = call.shape(0), call.axis("axis", 0)
    window, strides = call.ints("window_shape"), call.ints("strides")
    slid = len(shape) - first
    if len(window) != slid or len(strides) != slid:
        raise Declined(f"a window of {len(window)} axes over {slid}")
    x = call.x(0)
    for axis in reversed(range(first, len(shape))):
        size, step = window[axis - first], strides[axis - first]
        if size > shape[axis]:
            raise Declined(f"a window of {size} over {shape[axis]}")
        starts = np.arange(0, shape[axis] - size + 1, step)
        x = call.emit(relax.op.take(x, constant(starts[:, None] + np.arange(size)[None, :]), axis))
    places = [first + 2 * at for at in range(slid)]
    return permuted(x, [*range(first), *places, *(place + 1 for place in places)])
