"""Attention in one kernel: scores and weights stay in the registers of a warp, on tensor cores."""

from __future__ import annotations

from tvm import tirx

from backends.cuda.devices import CudaDevice
from backends.cuda.kernels.attention.emit import emit_attention
from backends.cuda.kernels.attention.plan import choose, estimate
from backends.cuda.kernels.attention.read import read_attention
from backends.cuda.kernels.template import CudaTemplate
from backends.tensorir.result import Scheduled

_NAME = "attention"


def _schedule(func: tirx.PrimFunc, device: CudaDevice) -> Scheduled:
    plan = choose(read_attention(func), device)
    seconds = estimate(plan, device)
    assert seconds is not None
    return Scheduled(emit_attention(func, plan), _NAME, str(plan.point), cycles=seconds * device.clock_hz)


TEMPLATE = CudaTemplate(_NAME, _schedule)
