"""Indexed reads that stay inside their tensor whatever the indices are: TVM's default reads past the end."""

from __future__ import annotations

from tvm import relax, topi

from backends.cpu.legalize.common import FLegalize


def _take(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """`take`: indices beyond the axis read its last entry."""
    data, indices = call.args
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    return builder.call_te(topi.take, data, indices, axis, mode="clip", primfunc_name_hint="take")


INDEXING: dict[str, FLegalize] = {"relax.take": _take}
