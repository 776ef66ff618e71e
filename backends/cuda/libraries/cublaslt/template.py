"""Gives a product of matrices to cuBLASLt in place of loops."""

from __future__ import annotations

from tvm import tirx

from backends.cuda.kernels.template import CudaTemplate, ScheduleContext
from backends.cuda.libraries.cublaslt.product import NAME
from backends.cuda.libraries.cublaslt.read import read_product_call
from backends.cuda.libraries.estimate import estimate_seconds
from backends.cuda.libraries.mark import marked
from backends.tensorir.result import Scheduled


def _schedule(func: tirx.PrimFunc, ctx: ScheduleContext) -> Scheduled:
    call = read_product_call(func, tfloat32=ctx.tfloat32)
    return Scheduled(marked(func, call), NAME, str(call.work), cycles=estimate_seconds(func, ctx) * ctx.device.clock_hz)


TEMPLATE = CudaTemplate(NAME, _schedule)
