"""Indexed reads that stay inside their tensor whatever the indices are: TVM's default reads past the end."""

from __future__ import annotations

from tvm import relax, topi

from backends.cpu.legalize.common import FLegalize


def _take(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """`take`: in mode "fast" indices beyond the axis, which a check keeps away, read its last entry."""
    data, indices = call.args
    axis, mode = None if call.attrs.axis is None else int(call.attrs.axis), str(call.attrs.mode)
    mode = "clip" if mode == "fast" else mode
    return builder.call_te(topi.take, data, indices, axis, mode=mode, primfunc_name_hint="take")


INDEXING: dict[str, FLegalize] = {"relax.take": _take}
