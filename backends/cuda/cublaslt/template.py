"""Gives a product of matrices to cuBLASLt in place of loops."""

from __future__ import annotations

import json
from dataclasses import asdict

from tvm import tirx

from backends.cuda.cublaslt.product import NAME, DeviceProductCall, read_call
from backends.cuda.cublaslt.read import read_product_call
from backends.cuda.devices import CudaDevice
from backends.cuda.kernels.template import CudaTemplate, ScheduleContext
from backends.tensorir.result import Scheduled

_CALL = "fusion.cublaslt"
"""The attribute of a PrimFunc that has the call which computes it, as JSON; its body is not used."""


def _schedule(func: tirx.PrimFunc, ctx: ScheduleContext) -> Scheduled:
    call = read_product_call(func, tfloat32=ctx.tfloat32)
    seconds = estimate(call, ctx.device)
    made = func.with_attr(_CALL, json.dumps(asdict(call)))
    return Scheduled(made, NAME, str(call.product), cycles=seconds * ctx.device.clock_hz)


def estimate(call: DeviceProductCall, device: CudaDevice) -> float:
    """Return the roofline time of a call in seconds, for how near the library comes to it was measured nowhere."""
    product = call.product
    item, stored = (4 if dtype == "float32" else 2 for dtype in (product.dtype, product.result_dtype))
    read = (product.rows + product.columns) * product.depth * item
    written = product.rows * product.columns * stored
    flops = 2 * product.batches * product.rows * product.columns * product.depth
    return device.floor(flops, product.batches * (read + written), device.gflops(product.multiplied)).seconds


def call_of(func: tirx.PrimFunc) -> DeviceProductCall | None:
    """Return the call that computes a PrimFunc; None where loops do."""
    held = func.attrs.get(_CALL) if func.attrs else None
    return None if held is None else read_call(json.loads(str(held)))


TEMPLATE = CudaTemplate(NAME, _schedule)
