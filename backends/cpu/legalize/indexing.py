"""Indexed reads that stay inside their tensor whatever the indices are: TVM's default reads past the end."""

from __future__ import annotations

from tvm import relax, te, tirx, topi

from backends.cpu.legalize.common import Expr, FLegalize


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


INDEXING: dict[str, FLegalize] = {"relax.take": _take, "relax.slice_scatter": _slice_scatter}
