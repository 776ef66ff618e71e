"""Samples of images in boxes that are data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.relax import Expr as RelaxExpr
from tvm.tirx import ForKind

from backends.tensorir.emit import Nest
from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import converts
from fusion.guards.check import check
from fusion.guards.kinds import batch_guard, finite_guard

Expr = Any  # a TensorIR expression

_MOST_SAMPLES = 1 << 22
"""Samples of a bin, where a box says how many; ONNX Runtime has no memory for more."""


@dataclass(frozen=True)
class _Pooling:
    """Attributes of a RoiAlign; `samples` is 0 where the size of a box says how many a bin has."""

    maximum: bool
    height: int
    width: int
    samples: int
    scale: float
    offset: float


@converts("RoiAlign")
def convert_roi_align(node: Node) -> RelaxExpr:
    """[N, C, H, W], boxes [R, 4], images [R] -> [R, C, height, width]."""
    if node.dtype(0) != "float32" or node.dtype(1) != "float32":
        raise Declined(f"RoiAlign of {node.dtype(0)}")
    half = node.attr("coordinate_transformation_mode", "half_pixel" if node.opset >= 16 else "") == "half_pixel"
    pooling = _Pooling(
        maximum=node.attr("mode", "avg") == "max",
        height=int(node.attr("output_height", 1)),
        width=int(node.attr("output_width", 1)),
        samples=int(node.attr("sampling_ratio", 0)),
        scale=float(node.attr("spatial_scale", 1.0)),
        offset=0.5 if half else 0.0,
    )
    boxes = node.emit(check(node.builder, node.x(1), finite_guard(node.where)))
    images = node.emit(check(node.builder, node.x(2), batch_guard(node.where, node.shape(0)[0])))

    def roi_align(data: te.Tensor, boxes: te.Tensor, images: te.Tensor) -> te.Tensor:
        return _roi_align(data, boxes, images, pooling)

    return node.builder.call_te(roi_align, node.x(0), boxes, images, primfunc_name_hint="roi_align")


def _roi_align(data: te.Tensor, boxes: te.Tensor, images: te.Tensor, pooling: _Pooling) -> te.Tensor:
    shape = [int(boxes.shape[0]), int(data.shape[1]), pooling.height, pooling.width]

    def loops(operands: Sequence[tirx.Buffer], results: Sequence[tirx.Buffer]) -> tirx.Stmt:
        nest = Nest()
        data, boxes, images = operands
        _Loops(nest=nest, data=data, boxes=boxes, images=images, out=results[0], pooling=pooling).emit(shape)
        return nest.finish()

    return te.extern([shape], [data, boxes, images], loops, name="roi_align", dtype="float32")


@dataclass(frozen=True)
class _Loops:
    """Of each bin: its samples, each of four pixels, weighted by how near they are.

    ONNX Runtime's maximum is one over the weighted pixels, not over their sums.
    """

    nest: Nest
    data: tirx.Buffer
    boxes: tirx.Buffer
    images: tirx.Buffer
    out: tirx.Buffer
    pooling: _Pooling

    def emit(self, shape: Sequence[int]) -> None:
        """Write the loops over the result."""
        nest, (regions, channels, height, width) = self.nest, shape
        with nest.loop("region", regions, ForKind.PARALLEL) as region:
            image = nest.bind("image", tirx.BufferLoad(self.images, [region]).astype("int64"))
            top, bin_height, rows = self._axis(region, 1, height, "y")
            left, bin_width, columns = self._axis(region, 0, width, "x")
            counts = self._counts(rows, columns)
            with nest.loop("channel", channels) as c, nest.loop("y", height) as y, nest.loop("x", width) as x:
                first = top + tirx.Cast("float32", y) * bin_height, left + tirx.Cast("float32", x) * bin_width
                steps = bin_height / rows, bin_width / columns
                value = self._bin([image, c], first, steps, counts)
                share = _float(1) if self.pooling.maximum else tirx.max(rows * columns, _float(1))
                nest.store(self.out, [region, c, y, x], value / share)

    def _counts(self, rows: Expr, columns: Expr) -> list[Expr]:
        """Return how many samples are taken: those of a box without a size, or with too large a one, are none."""
        if self.pooling.samples > 0:
            return [tirx.const(self.pooling.samples, "int64")] * 2
        few = tirx.all(rows > _float(0), columns > _float(0), rows * columns <= _float(_MOST_SAMPLES))
        chosen = [tirx.Select(few, count, _float(0)) for count in (rows, columns)]
        return [self.nest.bind("samples", tirx.Cast("int64", count)) for count in chosen]

    def _axis(self, region: Expr, first: int, bins: int, name: str) -> tuple[Expr, Expr, Expr]:
        """Return where the box begins along an axis, the size of a bin and how many samples that has."""
        nest, pooling = self.nest, self.pooling
        begin, end = (
            tirx.BufferLoad(self.boxes, [region, tirx.const(at, "int64")]) * _float(pooling.scale)
            - _float(pooling.offset)
            for at in (first, first + 2)
        )
        begin = nest.bind(f"begin_{name}", begin)
        size = end - begin if pooling.offset else tirx.max(end - begin, _float(1))
        step = nest.bind(f"bin_{name}", size / _float(bins))
        if pooling.samples > 0:
            return begin, step, _float(pooling.samples)
        return begin, step, nest.bind(f"grid_{name}", tirx.ceil(step))

    def _bin(self, at: list[Expr], first: Sequence[Expr], steps: Sequence[Expr], counts: Sequence[Expr]) -> Expr:
        nest = self.nest
        found = nest.allocate("found", (1,))
        nest.store(found, [0], _float(0))
        with nest.loop("iy", counts[0]) as iy, nest.loop("ix", counts[1]) as ix:
            y, x = (begin + (tirx.Cast("float32", step_at) + _float(0.5)) * step
                    for begin, step_at, step in zip(first, (iy, ix), steps, strict=True))  # fmt: skip
            y, x = self._register("sample_y", y), self._register("sample_x", x)
            sizes = [int(extent) for extent in self.data.ty.shape[2:]]
            inside = tirx.all(y >= _float(-1), y <= _float(sizes[0]), x >= _float(-1), x <= _float(sizes[1]))
            parts = self._pixels(at, (y, x), sizes, inside)
            so_far = tirx.BufferLoad(found, [0])
            if self.pooling.maximum:
                best = parts[0]
                for part in parts[1:]:
                    best = tirx.max(best, part)
                is_first = tirx.all(iy == tirx.const(0, "int64"), ix == tirx.const(0, "int64"))
                nest.store(found, [0], tirx.Select(is_first, best, tirx.max(so_far, best)))
            else:
                nest.store(found, [0], so_far + (parts[0] + parts[1] + parts[2] + parts[3]))
        return tirx.BufferLoad(found, [0])

    def _register(self, name: str, value: Expr) -> Expr:
        """Put a float in a register of its own: TVM fails on bounds of a name for what loop variables make."""
        buffer = self.nest.allocate(name, (1,))
        self.nest.store(buffer, [0], value)
        return tirx.BufferLoad(buffer, [0])

    def _pixels(self, at: list[Expr], point: Sequence[Expr], sizes: Sequence[int], inside: Expr) -> list[Expr]:
        """Return the four pixels around a point, weighted; zeros where it is outside of the image."""
        near, far, shares = [], [], []
        for name, place, size in zip("yx", point, sizes, strict=True):
            clamped = self.nest.bind(f"in_{name}", tirx.Select(inside, tirx.max(place, _float(0)), _float(0)))
            low = self.nest.bind(f"low_{name}", tirx.min(clamped.astype("int64"), tirx.const(size - 1, "int64")))
            near.append(low)
            far.append(tirx.min(low + 1, tirx.const(size - 1, "int64")))
            last = low >= tirx.const(size - 1, "int64")
            shares.append(tirx.Select(last, _float(0), clamped - low.astype("float32")))
        weights = [
            ((near[0], near[1]), (_float(1) - shares[0]) * (_float(1) - shares[1])),
            ((near[0], far[1]), (_float(1) - shares[0]) * shares[1]),
            ((far[0], near[1]), shares[0] * (_float(1) - shares[1])),
            ((far[0], far[1]), shares[0] * shares[1]),
        ]
        return [
            tirx.Select(inside, weight, _float(0)) * tirx.BufferLoad(self.data, [*at, *pixel])
            for pixel, weight in weights
        ]


def _float(value: float) -> Expr:
    return tirx.const(value, "float32")
