"""Indexed reads that stay inside their tensor whatever the indices are: TVM's default reads past the end, or divides by
zero."""

from __future__ import annotations

import tvm
from tvm import relax, te, tirx, topi

from backends.tensorir.legalize.common import NARROW, Expr, FLegalize
from backends.tensorir.legalize.sample_columns import FAR, has_columns, sample_columns, source
from fusion.bindings import data_of


def _take(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """`take`: in mode "fast" indices beyond the axis, which a check keeps away, read its last entry."""
    data, indices = call.args
    axis, mode = None if call.attrs.axis is None else int(call.attrs.axis), str(call.attrs.mode)
    mode = "clip" if mode == "fast" else mode
    return builder.call_te(topi.take, data, indices, axis, mode=mode, primfunc_name_hint="take")


def _slice_scatter(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """`slice_scatter`: TVM's default takes the source with indices of the whole axis, past its end, and warns of it."""
    x, source = call.args[:2]
    start, end, step = (int(bound) for bound in call.args[2:5])
    axis = int(call.attrs.axis) % int(x.ty.ndim)

    def compute(x: te.Tensor, source: te.Tensor) -> te.Tensor:
        def element(*index: Expr) -> Expr:
            place = index[axis]
            inside = tirx.all(place >= start, place < end, tirx.floormod(place - start, step) == 0)
            taken = [*index[:axis], tirx.floordiv(place - start, step), *index[axis + 1 :]]
            return tirx.if_then_else(inside, source(*taken), x(*index))

        return te.compute(x.shape, element, name="slice_scatter")

    return builder.call_te(compute, x, source, primfunc_name_hint="slice_scatter")


def _grid_sample(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """`image.grid_sample`: TVM's default has no place between far pixels in float16 and bfloat16, of which LLVM may
    crash. To reflect a place, it divides by the distance from the first pixel to the last: between two copies of an
    only one it is 1."""
    image, grid = (_as_wide(builder, operand) for operand in call.args)
    if str(call.attrs.padding_mode) == "reflection" and bool(call.attrs.align_corners):
        for axis in range(2, int(image.ty.ndim)):
            if int(image.ty.shape[axis]) == 1:
                image = builder.emit(relax.op.concat([image, image], axis))
    corners = bool(call.attrs.align_corners)
    if has_columns(image, call):
        sampled = sample_columns(builder, image, grid, call)
    elif str(call.attrs.padding_mode) == "reflection" and str(call.attrs.method) == "bicubic":
        sampled = builder.call_te(_reflected_bicubic, image, grid, corners, primfunc_name_hint="grid_sample")
    else:
        theirs = tvm.ir.Op.get("relax.image.grid_sample").get_attr("FLegalize")
        sampled = theirs(builder, relax.Call(call.op, [image, grid], call.attrs, call.ty_args))
    sampled = builder.emit(sampled)
    dtype = str(data_of(call).ty.dtype.dtype)
    return sampled if dtype == str(sampled.ty.dtype.dtype) else relax.op.astype(sampled, dtype)


def _reflected_bicubic(image: te.Tensor, grid: te.Tensor, corners: bool) -> te.Tensor:
    """Return the pixels of `image` [N, C, H, W] at the places of `grid` [N, (x, y), H', W'], each from 16 around it.

    TVM's own reflects floats by branches, 16 times over: LLVM took 18 s for it. Neighbours are whole numbers, which a
    remainder reflects, and none of them lies outside.
    """

    def reflected(place: Expr, size: Expr) -> Expr:
        last = 2 * size - (2 if corners else 1)  # that lies where 0 does, or beside it
        within = tirx.floormod(place, last if corners else last + 1)
        return te.min(within, last - within)

    def element(n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        places, weights = [], []
        for axis, size in ((1, image.shape[2]), (0, image.shape[3])):
            place = source(grid[n, axis, h, w], size, corners)
            floor = te.floor(place)
            first = te.min(te.max(floor, -FAR), FAR).astype("int32") - 1
            places.append([reflected(first + step, size) for step in range(4)])
            weights.append(_bicubic_weights(place - floor))
        (rows, columns), (down, across) = places, weights
        lines = [sum(image[n, c, y, x] * weight for x, weight in zip(columns, across, strict=True)) for y in rows]
        return sum(line * weight for line, weight in zip(lines, down, strict=True))

    return te.compute((*image.shape[:2], *grid.shape[2:]), element, name="grid_sample")


_SHARPNESS = -0.75
"""Of ONNX Runtime's and PyTorch's bicubic."""


def _bicubic_weights(fraction: Expr) -> list[Expr]:
    """Return the weights of the pixels before, at, behind and two behind a place."""
    a = _SHARPNESS

    def near(distance: Expr) -> Expr:
        return ((a + 2) * distance - (a + 3)) * distance * distance + 1

    def far(distance: Expr) -> Expr:
        return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a

    return [far(fraction + 1), near(fraction), near(1 - fraction), far(2 - fraction)]


def _as_wide(builder: relax.BlockBuilder, operand: relax.Expr) -> relax.Expr:
    narrow = str(operand.ty.dtype) in NARROW
    return builder.emit(relax.op.astype(operand, "float32")) if narrow else operand


INDEXING: dict[str, FLegalize] = {
    "relax.take": _take,
    "relax.slice_scatter": _slice_scatter,
    "relax.image.grid_sample": _grid_sample,
}
