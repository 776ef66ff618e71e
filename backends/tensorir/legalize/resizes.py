"""Linear interpolation of images at positions in whole numbers, as numerator and denominator.

TVM's form computes them in float32: every load waits for conversions and roundings, and far from 0 a weight has lost
the digits that the position's whole part takes.
"""

from __future__ import annotations

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

    def taps(self, pixel: Expr, dtype: str) -> _Taps:
        """Return what a pixel of the target is made of; positions outside of the source are those of its ends."""
        last = self.source - 1
        place = self.slope * pixel.astype("int32") + self.offset
        place = tirx.min(tirx.max(place, 0), last * self.denominator)
        below = tirx.truncdiv(place, self.denominator)
        over = tirx.truncmod(place, self.denominator).astype(dtype)
        return _Taps(below, tirx.min(below + 1, last), over * tirx.const(1 / self.denominator, dtype))


@dataclass(frozen=True)
class _Taps:
    """Two neighbouring pixels, and the weight of the one above."""

    below: Expr
    above: Expr
    weight: Expr

    def between(self, low: Expr, high: Expr) -> Expr:
        """Return the value between those of the two."""
        return low * (tirx.const(1, self.weight.ty.dtype) - self.weight) + high * self.weight


def _linear(x: te.Tensor, rows: _Axis, columns: _Axis, at: int) -> te.Tensor:
    """Return `x` resized along the axes `at` and `at` + 1."""
    dtype = wide_dtype(x)

    def element(*index: Expr) -> Expr:
        down, across = rows.taps(index[at], dtype), columns.taps(index[at + 1], dtype)

        def row(number: Expr) -> Expr:
            columns_at = (across.below, across.above)
            low, high = (wide(x(*index[:at], number, column, *index[at + 2 :])) for column in columns_at)
            return across.between(low, high)

        return down.between(row(down.below), row(down.above)).astype(x.dtype)

    shape = [*x.shape[:at], rows.target, columns.target, *x.shape[at + 2 :]]
    return te.compute(shape, element, name="resize", tag=topi.tag.INJECTIVE)


def _resize2d(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    x, attrs = data_of(call), call.attrs
    at = str(attrs.layout).index("H")
    sizes = [*x.ty.shape.values[at : at + 2], *call.ty.shape.values[at : at + 2]]
    if attrs.method == "linear" and is_float(x.ty.dtype.dtype) and all(isinstance(n, tirx.IntImm) for n in sizes):
        height, width, tall, broad = (int(size) for size in sizes)
        transform = str(attrs.coordinate_transformation_mode)
        rows, columns = _Axis.of(transform, height, tall), _Axis.of(transform, width, broad)
        if rows and columns:
            linear = partial(_linear, rows=rows, columns=columns, at=at)
            return builder.call_te(linear, x, primfunc_name_hint="resize2d")
    return tvm.ir.Op.get(_OPERATOR).get_attr("FLegalize")(builder, call)


RESIZES: dict[str, FLegalize] = {_OPERATOR: _resize2d}
