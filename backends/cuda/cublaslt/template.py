"""Gives a product of matrices to cuBLASLt in place of loops."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from tvm import tirx

from backends.cuda.cublaslt.product import NAME, DeviceProductCall, LibraryProduct, read_call
from backends.cuda.cublaslt.read import read_product_call
from backends.cuda.devices import CudaDevice
from backends.cuda.kernels.fastest import fastest
from backends.cuda.kernels.matmul.choose import estimate as estimate_product
from backends.cuda.kernels.matmul.choose import points
from backends.cuda.kernels.matmul.plan import cores_of
from backends.cuda.kernels.matmul.read import read_product
from backends.cuda.kernels.template import CudaTemplate, ScheduleContext
from backends.tensorir.result import Scheduled
from fusion.declined import Declined

_CALL = "fusion.cublaslt"
"""The attribute of a PrimFunc that has the call which computes it, as JSON; its body is not used."""


def _schedule(func: tirx.PrimFunc, ctx: ScheduleContext) -> Scheduled:
    call = read_product_call(func, tfloat32=ctx.tfloat32)
    seconds = estimate(func, call, ctx)
    made = func.with_attr(_CALL, json.dumps(asdict(call)))
    return Scheduled(made, NAME, str(call.product), cycles=seconds * ctx.device.clock_hz)


def estimate(func: tirx.PrimFunc, call: DeviceProductCall, ctx: ScheduleContext) -> float:
    """Return the time of a call in seconds: that of the best of our tiles at the rate of the instruction that the
    library has, whose documented algorithms share a depth among blocks, but no steps of several tiles; the roofline
    where no tile suits. How near the library comes to it was measured nowhere."""
    device = replace(ctx.device, mma_share=1.0)
    try:
        product = read_product(func)
        plans = points(product, cores_of(product, tfloat32=ctx.tfloat32))
        seconds = estimate_product(fastest(plans, lambda plan: estimate_product(plan, device)), device)
    except Declined:
        return _roofline(call.product, device)
    assert seconds is not None
    return seconds


def _roofline(product: LibraryProduct, device: CudaDevice) -> float:
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
