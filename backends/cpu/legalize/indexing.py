"""Indexed reads that stay inside their tensor whatever the indices are: TVM's default reads past the end, or divides by
zero."""

from __future__ import annotations

import tvm
from tvm import relax, te, tirx, topi

from backends.cpu.legalize.common import NARROW, Expr, FLegalize


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
    theirs = tvm.ir.Op.get("relax.image.grid_sample").get_attr("FLegalize")
    found = builder.emit(theirs(builder, relax.Call(call.op, [image, grid], call.attrs, call.ty_args)))
    return relax.op.astype(found, call.args[0].ty.dtype)


def _as_wide(builder: relax.BlockBuilder, operand: relax.Expr) -> relax.Expr:
    narrow = str(operand.ty.dtype) in NARROW
    return builder.emit(relax.op.astype(operand, "float32")) if narrow else operand


INDEXING: dict[str, FLegalize] = {
    "relax.take": _take,
    "relax.slice_scatter": _slice_scatter,
    "relax.image.grid_sample": _grid_sample,
}
