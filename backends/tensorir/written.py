"""PrimFuncs that come with their loops: `ScheduleKernels` leaves them as they are written.

Until then the loops lie in a block, which TVM's passes over graphs expect of every function.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.s_tir.stmt import SBlock, SBlockRealize

_WRITTEN = "fusion.written"


def written_func(params: Sequence[tirx.Var], body: tirx.Stmt) -> tirx.PrimFunc:
    """Return a function of `params`, no two of which share memory, that gets no other loops than those of `body`."""
    root = SBlockRealize([], True, SBlock([], [], [], "root", body))
    return tirx.PrimFunc(list(params), root).with_attrs({"tirx.noalias": True, "s_tir": True, _WRITTEN: True})


def written_loops(func: tirx.PrimFunc) -> tirx.PrimFunc | None:
    """Return what `written_func` made with its loops alone; None of any other function."""
    if func.attrs is None or _WRITTEN not in func.attrs:
        return None
    return func.with_body(func.body.block.body)
