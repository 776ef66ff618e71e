"""Reductions that each thread does for neighbours of its own: pools, depthwise convolutions, sums over any axes."""

from __future__ import annotations

from tvm import tirx

from backends.cuda.kernels.reductions.emit import emit_reductions
from backends.cuda.kernels.template import CudaTemplate, ScheduleContext
from backends.tensorir.result import Scheduled

_NAME = "reductions"


def _schedule(func: tirx.PrimFunc, ctx: ScheduleContext) -> Scheduled:
    return Scheduled(emit_reductions(func, ctx.device), _NAME, "16 bytes a thread, 256 threads")


TEMPLATE = CudaTemplate(_NAME, _schedule)
