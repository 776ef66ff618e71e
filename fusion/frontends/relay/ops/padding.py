"""Padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.relay.call import Call, dtype_of, shape_of
from fusion.frontends.relay.registry import translates

Widths = Sequence[tuple[int, int]]
"""What is put before and behind each axis."""


@translates("nn.pad")
def pad(call: Call) -> Expr:
    """Pad with a constant, which is operand 1, with the edge, or with what lies mirrored at it. Negative widths cut."""
    return _pad(call, pairs(call, "pad_width", call.rank(0)), 1)


@translates("dyn.nn.pad")
def dynamic_pad(call: Call) -> Expr:
    """The widths are operand 1, [rank, 2], and the constant is operand 2."""
    flat = call.const_ints(1)
    if len(flat) != 2 * call.rank(0):
        raise Declined(f"{len(flat)} widths for {call.rank(0)} axes")
    return _pad(call, list(zip(flat[::2], flat[1::2], strict=True)), 2)


def _pad(call: Call, widths: Widths, value: int) -> Expr:
    """Pad; the constant is operand `value`."""
    mode = call.text("pad_mode", "constant")
    if mode != "constant":
        return _pad_by_take(call, widths, {"edge": "edge", "reflect": "reflect"}, mode)
    # Before Relay 0.8 the constant was an attribute.
    number = call.const(value).item() if len(call.operands) > value else call.number("pad_value", 0.0)
    return pad_with(call, call.x(0), widths, number)


def pad_with(call: Call, x: Expr, widths: Widths, value: float) -> Expr:
    """Return `x` with `value` around it; where a width is negative, elements are left out."""
    cut = [
        (axis, -min(before, 0), size + min(after, 0))
        for axis, ((before, after), size) in enumerate(zip(widths, shape_of(x), strict=True))
        if min(before, after) < 0
    ]
    if cut:
        axes, starts, ends = zip(*cut, strict=True)
        x = call.emit(relax.op.strided_slice(x, list(axes), list(starts), list(ends)))
    flat = [max(width, 0) for pair in widths for width in pair]
    if not any(flat):
        return x
    dtype = dtype_of(x)
    if dtype == "bfloat16":
        return relax.op.astype(relax.op.nn.pad(relax.op.astype(x, "float32"), flat, "constant", float(value)), dtype)
    return relax.op.nn.pad(x, flat, "constant", float(value))


@translates("nn.mirror_pad")
def mirror_pad(call: Call) -> Expr:
    mode = call.text("mode", "SYMMETRIC")
    widths = pairs(call, "pad_width", call.rank(0))
    return _pad_by_take(call, widths, {"SYMMETRIC": "symmetric", "REFLECT": "reflect"}, mode)


def _pad_by_take(call: Call, widths: Widths, modes: dict[str, str], mode: str) -> Expr:
    """Pad axis by axis: each place takes the place that numpy's `pad` gives it."""
    if mode not in modes:
        raise Declined(f"there is no mode {mode!r}")
    x = call.x(0)
    for axis, (pair, size) in enumerate(zip(widths, call.shape(0), strict=True)):
        if min(pair) < 0:
            raise Declined("a negative width in this mode")
        if any(pair):
            places = np.pad(np.arange(size), pair, modes[mode])  # type: ignore[call-overload]
            x = call.emit(relax.op.take(x, constant(places.astype(np.int64)), axis))
    return x


def pairs(call: Call, name: str, rank: int) -> list[tuple[int, int]]:
    """Return an attribute of a pair of numbers for each axis."""
    value = call.value(name)
    if not isinstance(value, tuple) or len(value) != rank:
        raise Declined(f"attribute {name} is {value!r}, not a pair for each of {rank} axes")
    found = []
    for pair in value:
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(type(width) is int for width in pair):
            raise Declined(f"attribute {name} holds {pair!r}, not two integers")
        found.append((int(str(pair[0])), int(str(pair[1]))))
    return found
