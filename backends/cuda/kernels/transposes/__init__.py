"""Elementwise regions that read a tensor transposed: tiles of it are turned in shared memory."""

from __future__ import annotations

from tvm import tirx

from backends.cuda.kernels.template import CudaTemplate, ScheduleContext
from backends.cuda.kernels.transposes.emit import emit_transpose
from backends.tensorir.result import Scheduled

_NAME = "transposes"


def _schedule(func: tirx.PrimFunc, ctx: ScheduleContext) -> Scheduled:
    return Scheduled(emit_transpose(func), _NAME, "tiles that are turned, 256 threads")


TEMPLATE = CudaTemplate(_NAME, _schedule)
