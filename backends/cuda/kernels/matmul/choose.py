"""The points of a product, and the one that is taken to be fastest on a device.

Where the last wave of tiles is not full, blocks may share all steps of all tiles (stream-K): one wave, and a launch
that adds up the tiles of which several blocks have parts.

The estimate is a roofline of each wave of blocks: what their SM multiplies, what it moves between shared memory and
registers, and what it reads of the L2 cache, of which the slowest counts; memory, which brings each tensor once, may
take longer than all waves. It knows no latencies, was compared with no device, and takes the rate of tensor cores from
the data sheet, of which `mma` has a share on an H100: it is for choosing among points, not for telling times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product as combinations
from math import inf, prod

from backends.cuda.devices import WARP, CudaDevice
from backends.cuda.kernels.fastest import PointTime, fastest, waves_s
from backends.cuda.kernels.matmul.cores import Cores, TensorCores
from backends.cuda.kernels.matmul.plan import Plan, TileShape
from backends.cuda.kernels.matmul.read import SumOfProducts


@dataclass(frozen=True)
class TileSizes:
    """Sizes of tiles, each with each.

    Attributes:
        tiles: Rows and columns of a block, and of a warp.
        line_bytes: Of a tile along the depth.
    """

    tiles: tuple[tuple[int, int, int, int], ...]
    line_bytes: tuple[int, ...] = (64, 128)
    stages: tuple[int, ...] = (3, 2, 4)
    splits: tuple[int, ...] = (1, 2, 4, 8, 16)


TENSOR_CORES = TileSizes((
    (128, 256, 64, 64), (256, 128, 64, 64), (128, 128, 64, 64), (128, 128, 64, 32), (64, 256, 64, 64),
    (128, 64, 64, 32), (64, 128, 32, 64), (64, 64, 32, 32), (128, 32, 32, 32), (32, 128, 32, 32),
    (32, 64, 16, 32), (16, 128, 16, 32), (32, 32, 16, 16),
))  # fmt: skip
FLOAT_UNITS = TileSizes((
    (128, 128, 32, 64), (128, 64, 32, 64), (64, 128, 32, 64), (64, 64, 32, 32),
    (32, 128, 32, 32), (32, 64, 16, 32), (16, 128, 16, 32), (32, 32, 16, 32),
))  # fmt: skip


_WORTH = 0.95
"""Of the least time without it, what stream-K has to save: the estimate leaves out that its loops have no lengths which
the compiler knows."""


def points(product: SumOfProducts, cores: Cores) -> Iterator[Plan]:
    """Yield the plans that suit a product, those that win where the estimate is the same first."""
    space = TENSOR_CORES if isinstance(cores, TensorCores) else FLOAT_UNITS
    for tile, line, stages, split in combinations(space.tiles, space.line_bytes, space.stages, space.splits):
        rows, columns, warp_rows, warp_columns = tile
        depth = line // product.left.item_bytes
        warp = {"warp_rows": warp_rows, "warp_columns": warp_columns}
        plan = Plan(product, cores, TileShape(rows, columns, depth, **warp, stages=stages, split=split))
        if not plan.why_not():
            yield plan


def choose(product: SumOfProducts, cores: Cores, device: CudaDevice) -> Plan:
    """Return the plan whose estimate is lowest.

    Raises:
        Declined: No point suits the product, or none fits the device.
    """
    def time(plan: Plan) -> PointTime | None:
        return estimate_point(plan, device)

    plans = list(points(product, cores))
    plan = fastest(plans, time)
    streams = [stream for each in plans for stream in _streams(each, device)]
    stream = fastest(streams, time) if streams else plan
    return stream if (estimate(stream, device) or inf) < _WORTH * (estimate(plan, device) or inf) else plan


def _streams(plan: Plan, device: CudaDevice) -> Iterator[Plan]:
    """Yield a plan whose tiles do not fill their last wave with blocks that share all steps: as many as the device
    holds at once, so that there is one wave, all of whose blocks have as much to do."""
    at_once = device.blocks_at_once(plan.point.threads, plan.registers, plan.shared_bytes) * device.sms
    if plan.point.split == 1 and at_once and plan.blocks % at_once:
        stream = replace(plan, point=replace(plan.point, stream_blocks=at_once))
        if not stream.why_not():
            yield stream


def estimate(plan: Plan, device: CudaDevice) -> float | None:
    """Return the time of a plan in seconds; None where a block does not fit the device."""
    time = estimate_point(plan, device)
    return None if time is None else time.seconds


def estimate_point(plan: Plan, device: CudaDevice) -> PointTime | None:
    """Return the time of a plan; None where a block does not fit the device."""
    at_once = device.blocks_at_once(plan.point.threads, plan.registers, plan.shared_bytes)
    if not at_once:
        return None
    waves = waves_s(plan.blocks, at_once, device, lambda blocks: _wave_s(plan, device, blocks))
    product, point = plan.product, plan.point
    kept = point.split * product.batches * product.rows * product.columns if point.split > 1 else 0
    if point.stream_blocks:
        kept = 2 * point.stream_blocks * point.rows * point.columns
    more = device.kernel_s + device.floor(0, 8 * kept).seconds if kept else 0.0
    multiplied = product.batches * prod(plan.tiles) * point.rows * point.columns * point.depth
    return PointTime(max(waves, device.floor(0, product.moved_bytes).seconds) + more, waves + more, multiplied)


def _wave_s(plan: Plan, device: CudaDevice, blocks: int) -> float:
    """Return how long an SM takes for so many blocks at once."""
    point, item = plan.point, plan.product.left.item_bytes
    depth = plan.steps_of_block * point.depth
    warps = point.threads // WARP
    brought = (point.rows + point.columns) * depth * item
    read = warps * (point.warp_rows + point.warp_columns) * depth * item
    sums = 8 * point.rows * point.columns * plan.tiles_of_block
    busy = min(1.0, warps * blocks / device.schedulers)
    multiplying = 2 * point.rows * point.columns * depth / (plan.cores.gflops(device) / device.sms * busy)
    return blocks * 1e-9 * max(multiplying, (brought + read + sums) / device.shared_gbs, brought / device.l2_gbs)
