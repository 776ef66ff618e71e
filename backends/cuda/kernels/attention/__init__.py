"""Attention, or two products with an activation between, in one kernel: scores stay in the registers of a warp, and
on tensor cores weights do."""

from __future__ import annotations

from math import inf

from tvm import tirx

from backends.cuda.devices import CudaDevice
from backends.cuda.kernels.attention.emit import emit_attention
from backends.cuda.kernels.attention.plan import choose, estimate, estimate_apart
from backends.cuda.kernels.attention.read import read_attention
from backends.cuda.kernels.matmul.plan import cores_of
from backends.cuda.kernels.template import CudaTemplate, ScheduleContext
from backends.tensorir.estimate import Estimate
from backends.tensorir.result import Scheduled
from fusion.declined import Declined

_NAME = "attention"
_WITHOUT_SOFTMAX = "product-activation-product"


def _schedule(func: tirx.PrimFunc, ctx: ScheduleContext) -> Scheduled:
    region = read_attention(func)
    plan = choose(region, cores_of(region.scores, tfloat32=ctx.tfloat32), ctx.device)
    seconds = estimate(plan, ctx.device)
    assert seconds is not None
    name = _NAME if region.is_softmax else _WITHOUT_SOFTMAX
    return Scheduled(emit_attention(func, plan), name, str(plan), cycles=seconds * ctx.device.clock_hz)


def estimate_attention(func: tirx.PrimFunc, device: CudaDevice, *, tfloat32: bool) -> Estimate:
    """Return what an attention is estimated to take in one kernel, and in three; without a softmax in two.

    Raises:
        Declined: It is none, or no point of it fits the device.
    """
    region = read_attention(func)
    plan = choose(region, cores_of(region.scores, tfloat32=tfloat32), device)
    seconds = estimate(plan, device)
    assert seconds is not None
    try:
        apart = estimate_apart(plan, device)
    except Declined:  # no product makes more scores than an int32 counts
        apart = inf
    return Estimate(seconds * device.clock_hz, apart * device.clock_hz, kernels=3 if region.is_softmax else 2)


TEMPLATE = CudaTemplate(_NAME, _schedule)
