"""Sums of products of two tensors, on tensor cores or in float32: matmuls, batches, and convolutions as such."""

from __future__ import annotations

from tvm import tirx

from backends.cuda.codegen.launches import join_launches
from backends.cuda.kernels.matmul.choose import choose, estimate
from backends.cuda.kernels.matmul.kernels import emit_matmul
from backends.cuda.kernels.matmul.plan import cores_of
from backends.cuda.kernels.matmul.read import read_product
from backends.cuda.kernels.template import CudaTemplate, ScheduleContext
from backends.tensorir.result import Scheduled

_NAME = "product"


def _schedule(func: tirx.PrimFunc, ctx: ScheduleContext) -> Scheduled:
    product = read_product(func)
    plan = choose(product, cores_of(product, tfloat32=ctx.tfloat32), ctx.device)
    kernels = emit_matmul(func, plan)
    workspaces = kernels[0].params[len(func.params) :]
    made = kernels[0]
    if workspaces:
        made = join_launches(func, workspaces, [kernel.body for kernel in kernels])
    seconds = estimate(plan, ctx.device)
    assert seconds is not None
    return Scheduled(made, _NAME, str(plan), cycles=seconds * ctx.device.clock_hz)


TEMPLATE = CudaTemplate(_NAME, _schedule)
