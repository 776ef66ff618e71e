"""What a library's kernel is estimated to take, by which it is chosen or not.

No library publishes its times. All multiply by tiles as ours do, so the estimate is that of the best of our tiles, at
the rate of the instruction that the library has (`wgmma` on an H100, of which our `mma` reaches a share: `devices.py`,
with sources), and with what it is documented to split: a depth among blocks, but not steps of several tiles. How near
libraries come to it was measured nowhere.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tvm import tirx

from backends.cuda.kernels.fastest import fastest
from backends.cuda.kernels.matmul.choose import estimate as estimate_plan
from backends.cuda.kernels.matmul.choose import points
from backends.cuda.kernels.matmul.plan import cores_of
from backends.cuda.kernels.matmul.read import SumOfProducts, read_product
from backends.cuda.kernels.template import ScheduleContext
from backends.tensorir.stages import item_bytes_of, shape_of
from fusion.declined import Declined


def estimate_seconds(func: tirx.PrimFunc, ctx: ScheduleContext) -> float:
    """Return the time of a library's call that computes `func`, a product; the roofline where no tile suits.

    Raises:
        Declined: It is none.
    """
    device, product = replace(ctx.device, mma_share=1.0), read_product(func)
    cores = cores_of(product, tfloat32=ctx.tfloat32)
    try:
        plans = points(product, cores)
        seconds = estimate_plan(fastest(plans, lambda plan: estimate_plan(plan, device)), device)
    except Declined:
        rate = cores.gflops(device)
        return device.floor(_operations(product), _moved_bytes(product), rate).seconds
    assert seconds is not None
    return seconds


def _operations(product: SumOfProducts) -> int:
    return 2 * product.batches * product.rows * product.columns * product.depth


def _moved_bytes(product: SumOfProducts) -> int:
    """Return what is read and written at least: each operand once, as it lies."""
    sums = product.batches * product.rows * product.columns
    held = sum(prod(shape_of(each.buffer)) * each.item_bytes for each in (product.left, product.right))
    return held + sums * item_bytes_of(product.behind.outputs[0].buffer)
