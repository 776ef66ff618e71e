"""Elementwise regions of any size: each thread computes neighbours that one access of 16 bytes loads or stores."""

from __future__ import annotations

from tvm import tirx

from backends.cuda.kernels.pointwise.emit import emit_pointwise
from backends.cuda.kernels.template import CudaTemplate, ScheduleContext
from backends.tensorir.result import Scheduled

_NAME = "pointwise"


def _schedule(func: tirx.PrimFunc, ctx: ScheduleContext) -> Scheduled:
    return Scheduled(emit_pointwise(func), _NAME, "16 bytes a thread, 256 threads")


TEMPLATE = CudaTemplate(_NAME, _schedule)
