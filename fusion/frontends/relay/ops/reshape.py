"""Operators that change a tensor's shape or the order of its axes, and broadcasts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call, shape_of
from fusion.frontends.relay.registry import translates

Shape = tuple[int, ...]

_COPY, _INFER, _COPY_REST, _MERGE, _SPLIT = 0, -1, -2, -3, -4


@translates("reshape")
def reshape(call: Call) -> Expr:
    return reshaped(call.x(0), new_shape(call.shape(0), call.ints("newshape"), call.flag("allowzero", False)))


@translates("contrib_reverse_reshape")
def reverse_reshape(call: Call) -> Expr:
    """`reshape` whose codes are read from the right."""
    backward = new_shape(call.shape(0)[::-1], call.ints("newshape")[::-1], call.flag("allowzero", False))
    return reshaped(call.x(0), backward[::-1])


@translates("dyn.reshape")
def dynamic_reshape(call: Call) -> Expr:
    return reshaped(call.x(0), new_shape(call.shape(0), call.const_ints(1), call.flag("allowzero", False)))


@translates("reshape_like")
def reshape_like(call: Call) -> Expr:
    """Axes `lhs_begin` to `lhs_end` of operand 0 take the shape of axes `rhs_begin` to `rhs_end` of operand 1."""
    source, like = call.shape(0), call.shape(1)
    ours = slice(call.integer("lhs_begin", 0), call.optional_integer("lhs_end")).indices(len(source))
    theirs = slice(call.integer("rhs_begin", 0), call.optional_integer("rhs_end")).indices(len(like))
    return reshaped(call.x(0), source[: ours[0]] + like[theirs[0] : theirs[1]] + source[ours[1] :])


@translates("squeeze")
def squeeze(call: Call) -> Expr:
    return _squeezed(call, call.optional_ints("axis"))


@translates("dyn.squeeze")
def dynamic_squeeze(call: Call) -> Expr:
    return _squeezed(call, call.const_ints(1))


def _squeezed(call: Call, axes: Sequence[int] | None) -> Expr:
    """Without `axes`, all of size 1 go."""
    shape = call.shape(0)
    if axes is None:
        return reshaped(call.x(0), tuple(extent for extent in shape if extent != 1))
    gone = {call.axis_of(axis) for axis in axes}
    if any(shape[axis] != 1 for axis in gone):
        raise Declined(f"an axis of {shape} that is squeezed is not of size 1")
    return reshaped(call.x(0), tuple(extent for axis, extent in enumerate(shape) if axis not in gone))


@translates("expand_dims")
def expand_dims(call: Call) -> Expr:
    return _expanded(call, call.integer("axis", 0))


@translates("dyn.expand_dims")
def dynamic_expand_dims(call: Call) -> Expr:
    return _expanded(call, call.const_ints(1)[0])


def _expanded(call: Call, axis: int) -> Expr:
    shape = call.shape(0)
    at = call.axis_of(axis, len(shape) + 1)
    return reshaped(call.x(0), shape[:at] + (1,) * call.integer("num_newaxis", 1) + shape[at:])


@translates("transpose")
def transpose(call: Call) -> Expr:
    rank = call.rank(0)
    axes = [call.axis_of(axis) for axis in call.ints("axes")] or list(reversed(range(rank)))
    if sorted(axes) != list(range(rank)):
        raise Declined(f"axes {axes} are not those of a tensor of rank {rank}")
    return permuted(call.x(0), axes)


@translates("broadcast_to")
def broadcast_to(call: Call) -> Expr:
    return broadcast(call.x(0), call.const_ints(1) if len(call.operands) > 1 else call.ints("shape"))


@translates("dyn.broadcast_to")
def dynamic_broadcast_to(call: Call) -> Expr:
    return broadcast(call.x(0), call.const_ints(1))


@translates("broadcast_to_like")
def broadcast_to_like(call: Call) -> Expr:
    return broadcast(call.x(0), call.shape(1))


@translates("collapse_sum_like")
def collapse_sum_like(call: Call) -> Expr:
    return _collapsed(call, call.shape(1))


@translates("collapse_sum_to")
def collapse_sum_to(call: Call) -> Expr:
    return _collapsed(call, call.optional_ints("shape") or call.const_ints(1))


def _collapsed(call: Call, target: Shape) -> Expr:
    """The sum over what broadcasting from `target` repeats."""
    source = call.shape(0)
    more = len(source) - len(target)
    pairs = list(zip(source[max(more, 0) :], target, strict=False))
    if more < 0 or any(want not in (1, have) for have, want in pairs):
        raise Declined(f"{source} is not what {target} broadcasts to")
    axes = [*range(more), *(more + axis for axis, (have, want) in enumerate(pairs) if want != have)]
    return reshaped(call.emit(relax.op.sum(call.x(0), axes, True)), target) if axes else call.x(0)


def reshaped(x: Expr, shape: Shape) -> Expr:
    """Return `x` with another shape of as many elements; `x` itself where it has that shape."""
    have = shape_of(x)
    if math.prod(have) != math.prod(shape):
        raise Declined(f"{have} has not as many elements as {shape}")
    return x if have == shape else relax.op.reshape(x, shape)


def permuted(x: Expr, axes: Sequence[int]) -> Expr:
    """Return `x` with its axes in another order; `x` itself where they are in that order."""
    return x if list(axes) == list(range(len(axes))) else relax.op.permute_dims(x, list(axes))


def broadcast(x: Expr, shape: Shape) -> Expr:
    """Return `x` repeated to `shape`; `x` itself where it has that shape."""
    have = shape_of(x)
    if have == shape:
        return x
    if len(have) > len(shape) or any(h not in (1, s) for h, s in zip(have[::-1], shape[::-1], strict=False)):
        raise Declined(f"{have} does not broadcast to {shape}")
    return relax.op.broadcast_to(x, shape)


def new_shape(source: Shape, codes: Sequence[int], allow_zero: bool = False) -> Shape:
    """Return what Relay's `newshape` makes of the shape `source`.

    A positive number is a size, 0 copies the size at the same place (unless `allow_zero`, which makes it a size),
    -1 is what remains, -2 copies all further sizes, -3 merges two, and -4 splits one into the two numbers that follow.
    """
    made: list[int] = []
    inferred: int | None = None
    at, entries = 0, list(codes)
    while entries:
        code = entries.pop(0)
        if code == _INFER and inferred is not None:
            raise Declined(f"newshape {tuple(codes)} has more than one -1")
        if code == _SPLIT:
            extents = _split(_sizes(source, at, 1)[0], entries)
        elif code == _INFER:
            inferred, extents = len(made), [1]
        elif code == _COPY_REST:
            extents = list(source[at:])
        elif code == _MERGE:
            extents = [math.prod(_sizes(source, at, 2))]
        elif code == _COPY and not allow_zero:
            extents = _sizes(source, at, 1)
        else:
            extents = [code]
        made += extents
        at += len(extents) if code == _COPY_REST else 2 if code == _MERGE else 1
    if inferred is not None:
        rest = math.prod(made)
        made[inferred] = math.prod(source) // rest if rest else 0
    if math.prod(made) != math.prod(source) or any(extent < 0 for extent in made):
        raise Declined(f"newshape {tuple(codes)} does not fit {source}")
    return tuple(made)


def _sizes(source: Shape, at: int, count: int) -> list[int]:
    if at + count > len(source):
        raise Declined(f"newshape reads more axes than {source} has")
    return list(source[at : at + count])


def _split(extent: int, entries: list[int]) -> list[int]:
    """Take two numbers from the front of `entries`, one of which may be -1, as the factors of `extent`."""
    if len(entries) < 2 or (entries[0] == entries[1] == _INFER) or 0 in entries[:2]:
        raise Declined("-4 in newshape is not followed by two factors")
    first, second = entries.pop(0), entries.pop(0)
    return [extent // second if first == _INFER else first, extent // first if second == _INFER else second]
