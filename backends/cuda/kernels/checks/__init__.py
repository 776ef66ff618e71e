"""Checks of values that only the run knows: each thread looks at some, and ends the kernel where one does not hold."""

from __future__ import annotations

from tvm import tirx

from backends.cuda.kernels.checks.emit import emit_check
from backends.cuda.kernels.template import CudaTemplate, ScheduleContext
from backends.tensorir.result import Scheduled

_NAME = "checks"


def _schedule(func: tirx.PrimFunc, ctx: ScheduleContext) -> Scheduled:
    return Scheduled(emit_check(func), _NAME, "256 threads")


TEMPLATE = CudaTemplate(_NAME, _schedule)
