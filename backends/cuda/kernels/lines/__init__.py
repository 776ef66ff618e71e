"""Kernels that come with loops of which each turn of an outermost one is a thread (`backends/cuda/legalize/`)."""

from __future__ import annotations

from tvm import tirx

from backends.cuda.kernels.lines.emit import emit_lines
from backends.cuda.kernels.template import CudaTemplate, ScheduleContext
from backends.tensorir.result import Scheduled

_NAME = "lines"


def _schedule(func: tirx.PrimFunc, ctx: ScheduleContext) -> Scheduled:
    return Scheduled(emit_lines(func), _NAME, "256 threads")


TEMPLATE = CudaTemplate(_NAME, _schedule)
