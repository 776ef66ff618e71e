"""Layouts as Relay writes them, and tensors brought from one to another.

A layout has a letter for each axis, in the order of the tensor's axes. Of `NCHW8c`, the small letter with a number is
the inner part of its axis: channels are split into blocks of 8, C counts the blocks and c the channels in one, so that
channel 19 is element 3 of block 2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call, shape_of
from fusion.frontends.relay.ops.reshape import permuted, reshaped


@dataclass(frozen=True)
class Layout:
    """What the axes of a tensor are.

    Attributes:
        axes: A letter for each, inner parts in small ones.
        inner: How many elements the inner part of an axis has, by the axis's own letter; of split axes only.
    """

    axes: str
    inner: Mapping[str, int]

    @property
    def whole_axes(self) -> str:
        """The axes as they would be if none were split."""
        return "".join(axis for axis in self.axes if axis.isupper())

    def grouped(self, order: str) -> str:
        """Return the axes with inner parts right behind their axes, which stand in `order`."""
        return "".join(axis for whole in order for axis in (whole, whole.lower()) if axis in self.axes)


def read_layout(text: str) -> Layout:
    """Return the layout that `text`, such as `NCHW8c`, names.

    Raises:
        Declined: It is none: a letter comes twice, a small letter has no number or no capital one, or a capital letter
            has a number.
    """
    found = re.findall(r"(\d*)([A-Za-z])", text)
    axes = [axis for _, axis in found]
    is_whole = "".join(size + axis for size, axis in found) == text and len(set(axes)) == len(axes)
    if not is_whole or any(bool(size) != axis.islower() or axis.upper() not in axes for size, axis in found):
        raise Declined(f"there is no layout {text!r}")
    return Layout("".join(axes), {axis.upper(): int(size) for size, axis in found if size})


def relayout(call: Call, x: Expr, source: str, target: str) -> Expr:
    """Return `x`, which lies as `source` says, as `target` says; as it is where nothing is split and both are the same.

    Raises:
        Declined: As of `with_layout`.
    """
    return x if source == target and source.isupper() else call.emit(with_layout(call, x, source, target))


def with_layout(call: Call, x: Expr, source: str, target: str) -> Expr:
    """Return `x`, which lies as `source` says, as `target` says.

        NCHW8c -> NHWC16c, where x is (1, 4, 7, 9, 8):
        NHWCc, transposed: the axes in the order of the target, inner parts behind them; (1, 7, 9, 4, 8)
        NHWCc, reshaped: the inner parts of the target instead of those of the source; (1, 7, 9, 2, 16)
        NHWC16c, transposed: inner parts where the target has them

    Raises:
        Declined: One is no layout, they or the tensor have different axes, or a part does not divide its axis.
    """
    shape, ours, theirs = shape_of(x), read_layout(source), read_layout(target)
    order = theirs.whole_axes
    if len(ours.axes) != len(shape) or sorted(order) != sorted(ours.whole_axes):
        raise Declined(f"layout {source} of {shape} does not become {target}")
    extents = dict(zip(ours.axes, shape, strict=True))
    split: dict[str, int] = {}
    for axis in order:
        split.update(_split(axis, extents[axis] * extents.get(axis.lower(), 1), theirs.inner.get(axis)))
    whole = call.emit(permuted(x, [ours.axes.index(axis) for axis in ours.grouped(order)]))
    parts = call.emit(reshaped(whole, tuple(split.values())))
    return permuted(parts, [theirs.grouped(order).index(axis) for axis in theirs.axes])


def _split(axis: str, extent: int, inner: int | None) -> dict[str, int]:
    """Return the extents of an axis and of its inner part, where it is to have one of `inner` elements."""
    if inner is None:
        return {axis: extent}
    if inner == 0 or extent % inner:
        raise Declined(f"axis {axis} of size {extent} does not split by {inner}")
    return {axis: extent // inner, axis.lower(): inner}
