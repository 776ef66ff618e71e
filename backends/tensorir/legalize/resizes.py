"""Linear and cubic interpolation of images at positions in whole numbers, as numerator and denominator.

TVM's form computes them in float32: every load waits for conversions and roundings, and far from 0 a weight has lost
the digits that the position's whole part takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import relax, te, tirx, topi

from backends.tensorir.legalize.common import FLegalize, is_float, wide, wide_dtype
from fusion.bindings import data_of

Expr = Any

_OPERATOR = "relax.image.resize2d"
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class _Place:
    """Where a pixel of the target lies on the source: so far behind the pixel `below`, which may be outside of it."""

    below: Expr
    behind: Expr


@dataclass(frozen=True)
class _Axis:
    """One axis of a resize, of `source` pixels to `target` pixels.

    The target's pixel i lies at (slope * i + offset) / denominator of the source's: the same numbers for images of any
    size that are made twice as large.
    """

    source: int
    target: int
    slope: int
    offset: int
    denominator: int

    @staticmethod
    def of(transform: str, source: int, target: int) -> _Axis | None:
        """Return the axis under a coordinate transformation of ONNX; None where its positions are not made here."""
        if min(source, target) < 1:
            return None
        whole = min(source, target) if max(source, target) % min(source, target) == 0 else 1
        if transform == "half_pixel" or (transform == "pytorch_half_pixel" and target > 1):
            found = _Axis(source, target, 2 * source // whole, (source - target) // whole, 2 * target // whole)
        elif transform == "align_corners" and target > 1:
            found = _Axis(source, target, source - 1, 0, target - 1)
        elif transform == "asymmetric":
            found = _Axis(source, target, source // whole, 0, target // whole)
        else:
            return None
        largest = max(found.slope * target + abs(found.offset), found.denominator * source)
        return found if largest <= _LARGEST else None

    def place(self, pixel: Expr, dtype: str) -> _Place:
        """Return where a pixel of the target lies."""
        at = self.slope * pixel.astype("int32") + self.offset
        over = tirx.floormod(at, self.denominator).astype(dtype)
        return _Place(tirx.floordiv(at, self.denominator), over * tirx.const(1 / self.denominator, dtype))

    def taps(self, pixel: Expr, dtype: str) -> _Taps:
        """Return what a pixel of the target is made of; positions outside of the source are those of its ends."""
        last = self.source - 1
        place = self.slope * pixel.astype("int32") + self.offset
        place = tirx.min(tirx.max(place, 0), last * self.denominator)
        below = tirx.truncdiv(place, self.denominator)
        over = tirx.truncmod(place, self.denominator).astype(dtype)
        return _Taps(below, tirx.min(below + 1, last), over * tirx.const(1 / self.denominator, dtype))


@dataclass(frozen=True)
class _OddAxis:
    """One axis of a resize between sizes neither of which is a multiple of the other, or of one pixel.

    The target's pixel i lies at ((2 * i + centre) * source / target - centre) / 2 of the source's, where a centre of 1
    is the middle of a pixel and 0 its beginning. No number in that is made of both sizes: it is the same for images of
    any size that are made as large as another one.
    """

    source: int
    target: int
    centre: int

    @staticmethod
    def of(transform: str, source: int, target: int) -> _OddAxis | None:
        """Return the axis under a coordinate transformation of ONNX; None where it is none of these."""
        if min(source, target) < 1 or (source > 1 and max(source, target) % min(source, target) == 0):
            return None
        if transform == "half_pixel" or (transform == "pytorch_half_pixel" and target > 1):
            found = _OddAxis(source, target, 1)
        elif transform == "asymmetric":
            found = _OddAxis(source, target, 0)
        else:
            return None
        return found if 2 * source * target <= _LARGEST else None

    def place(self, pixel: Expr, dtype: str) -> _Place:
        """Return where a pixel of the target lies."""
        share = tirx.const(1 / self.target, dtype)
        if not self.centre:
            at = self.source * pixel.astype("int32")
            return _Place(tirx.floordiv(at, self.target), tirx.floormod(at, self.target).astype(dtype) * share)
        at = self.source * (2 * pixel.astype("int32") + 1)
        halves = tirx.floordiv(at, self.target)
        above = halves - tirx.floordiv(halves, 2)  # not (halves + 1) // 2, which TVM makes `source + target` of
        even = tirx.const(1, dtype) - tirx.floormod(halves, 2).astype(dtype)
        over = even + tirx.floormod(at, self.target).astype(dtype) * share
        return _Place(above - 1, over * tirx.const(0.5, dtype))

    def taps(self, pixel: Expr, dtype: str) -> _Taps:
        """Return what a pixel of the target is made of; positions outside of the source are those of its ends."""
        if self.source == 1:
            return _Taps(tirx.const(0, "int32"), tirx.const(0, "int32"), None)
        place, last = self.place(pixel, dtype), self.source - 1
        return _Taps(tirx.max(place.below, 0), tirx.min(place.below + 1, last), place.behind)


_AnyAxis = _Axis | _OddAxis


@dataclass(frozen=True)
class _Taps:
    """Two neighbouring pixels, and the weight of the one above; None where both are one."""

    below: Expr
    above: Expr
    weight: Expr | None

    def between(self, value: Callable[[Expr], Expr]) -> Expr:
        """Return what lies between the values of the two."""
        if self.weight is None:
            return value(self.below)
        low, high = value(self.below), value(self.above)
        return low * (tirx.const(1, self.weight.ty.dtype) - self.weight) + high * self.weight


def _axis_of(transform: str, source: int, target: int) -> _AnyAxis | None:
    return _OddAxis.of(transform, source, target) or _Axis.of(transform, source, target)


def _linear(x: te.Tensor, rows: _AnyAxis, columns: _AnyAxis, at: int) -> te.Tensor:
    """Return `x` resized along the axes `at` and `at` + 1."""
    dtype = wide_dtype(x)

    def element(*index: Expr) -> Expr:
        down, across = rows.taps(index[at], dtype), columns.taps(index[at + 1], dtype)

        def row(number: Expr) -> Expr:
            return across.between(lambda column: wide(x(*index[:at], number, column, *index[at + 2 :])))

        return down.between(row).astype(x.dtype)

    shape = [*x.shape[:at], rows.target, columns.target, *x.shape[at + 2 :]]
    return te.compute(shape, element, name="resize", tag=topi.tag.INJECTIVE)


def _cubic(x: te.Tensor, axis: _AnyAxis, at: int, a: float) -> te.Tensor:
    """Return `x` resized along the axis `at` by the kernel of Keys ("Cubic convolution interpolation for digital image
    processing", 1981); pixels outside of it are those of its ends."""
    dtype = wide_dtype(x)

    def number(value: float) -> Expr:
        return tirx.const(value, dtype)

    def near(distance: Expr) -> Expr:
        return (number(a + 2) * distance - number(a + 3)) * distance * distance + number(1)

    def far(distance: Expr) -> Expr:
        return ((number(a) * distance - number(5 * a)) * distance + number(8 * a)) * distance - number(4 * a)

    def element(*index: Expr) -> Expr:
        place = axis.place(index[at], dtype)
        behind, left = place.behind, number(1) - place.behind
        weights = far(behind + number(1)), near(behind), near(left), far(left + number(1))
        pixels = (tirx.min(tirx.max(place.below + step, 0), axis.source - 1) for step in (-1, 0, 1, 2))
        terms = (
            wide(x(*index[:at], pixel, *index[at + 1 :])) * weight
            for pixel, weight in zip(pixels, weights, strict=True)
        )
        return sum(terms, number(0)).astype(x.dtype)

    shape = [*x.shape[:at], axis.target, *x.shape[at + 1 :]]
    return te.compute(shape, element, name="resize", tag=topi.tag.INJECTIVE)


def _resize2d(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    x, attrs = data_of(call), call.attrs
    at = str(attrs.layout).index("H")
    sizes = [*x.ty.shape.values[at : at + 2], *call.ty.shape.values[at : at + 2]]
    if is_float(x.ty.dtype.dtype) and all(isinstance(n, tirx.IntImm) for n in sizes):
        height, width, tall, broad = (int(size) for size in sizes)
        transform = str(attrs.coordinate_transformation_mode)
        rows, columns = _axis_of(transform, height, tall), _axis_of(transform, width, broad)
        if rows and columns and attrs.method == "linear":
            linear = partial(_linear, rows=rows, columns=columns, at=at)
            return builder.call_te(linear, x, primfunc_name_hint="resize2d")
        if rows and columns and attrs.method == "cubic" and not attrs.cubic_exclude:
            for place, axis in ((at, rows), (at + 1, columns)):
                if axis.source != axis.target or transform == "align_corners":
                    cubic = partial(_cubic, axis=axis, at=place, a=float(attrs.cubic_alpha))
                    x = builder.emit(builder.call_te(cubic, x, primfunc_name_hint="resize2d"))
            return x
    return tvm.ir.Op.get(_OPERATOR).get_attr("FLegalize")(builder, call)


RESIZES: dict[str, FLegalize] = {_OPERATOR: _resize2d}
