"""Stages over rows, such as softmax and normalisations: the lanes of a warp, or the warps of a block, share a row
and keep it in registers."""

from __future__ import annotations

from tvm import tirx

from backends.cuda.kernels.rows.emit import emit_rows
from backends.cuda.kernels.template import CudaTemplate, ScheduleContext
from backends.tensorir.result import Scheduled

_NAME = "rows"


def _schedule(func: tirx.PrimFunc, ctx: ScheduleContext) -> Scheduled:
    return Scheduled(emit_rows(func, ctx.device), _NAME, "a row in registers of up to 32 lanes, or of a block")


TEMPLATE = CudaTemplate(_NAME, _schedule)
