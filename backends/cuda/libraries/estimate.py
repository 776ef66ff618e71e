"""What a library's kernel is estimated to take, by which it is chosen or not.

No library publishes its times. All multiply by tiles as ours do, so the estimate is that of the best of our tiles, at
the rate of the instruction that the library has (`wgmma` on an H100, of which our `mma` reaches a share: `devices.py`,
with sources), and with what it is documented to split: a depth among blocks, but not steps of several tiles. How near
libraries come to it was measured nowhere.
"""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx

from backends.cuda.kernels.fastest import fastest
from backends.cuda.kernels.matmul.choose import estimate_point, points
from backends.cuda.kernels.matmul.plan import cores_of
from backends.cuda.kernels.matmul.read import SumOfProducts, read_product
from backends.cuda.kernels.template import ScheduleContext
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
        time = estimate_point(fastest(plans, lambda plan: estimate_point(plan, device)), device)
    except Declined:
        return device.floor(_operations(product), product.moved_bytes, cores.gflops(device)).seconds
    assert time is not None
    return time.seconds


def _operations(product: SumOfProducts) -> int:
    return 2 * product.batches * product.rows * product.columns * product.depth
