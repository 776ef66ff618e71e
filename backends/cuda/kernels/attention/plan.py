"""How an attention is divided among blocks, warps and tiles of keys, and what a point takes of a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as combinations

from backends.cuda.devices import REGISTERS, WARP, CudaDevice
from backends.cuda.kernels.attention.read import AttentionRegion
from backends.cuda.kernels.fastest import fastest, waves_s
from backends.cuda.kernels.matmul.cores import TensorCores
from backends.cuda.kernels.matmul.sums import SumsTile
from backends.cuda.kernels.matmul.tile import Tile

WARP_ROWS = 16
"""Queries of a warp: those of one `mma`."""
_WIDEST = 224
"""Numbers of a query, a key or a value."""
_OTHER_REGISTERS = 40
"""Of a thread, beside what it keeps of queries, scores and sums: `test_toolkit.py` holds it to what ptxas counts."""


@dataclass(frozen=True)
class AttentionTile:
    """The sizes of tiles.

    Attributes:
        warps: Of a block, each with 16 queries.
        keys: Of a tile.
        stages: Tiles of keys and values in shared memory, of which all but one are on their way.
    """

    warps: int
    keys: int
    stages: int

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.warps * WARP


@dataclass(frozen=True)
class FlashPlan:
    """An attention at one point."""

    region: AttentionRegion
    point: AttentionTile

    @property
    def cores(self) -> TensorCores:
        """What multiplies."""
        return TensorCores(self.region.scores.dtype)

    @property
    def rows(self) -> int:
        """Queries of a block."""
        return self.point.warps * WARP_ROWS

    @property
    def queries(self) -> Tile:
        """The block's queries; so for `keys` and `values`, of which each stage has a tile."""
        return Tile(self.region.scores.left, self.rows, _line(self.region.scores.depth))

    @property
    def keys(self) -> Tile:
        return Tile(self.region.scores.right, self.point.keys, _line(self.region.scores.depth))

    @property
    def values(self) -> Tile:
        return Tile(self.region.values, _line(self.region.channels), self.point.keys)

    @property
    def depth_steps(self) -> int:
        """Steps of 16 numbers of a query."""
        return -(-self.region.scores.depth // 16)

    @property
    def channels(self) -> int:
        """Numbers of a value that are multiplied: whole steps of 16."""
        return -(-self.region.channels // 16) * 16

    @property
    def stage_bytes(self) -> int:
        """Size of what one stage brings."""
        return self.keys.bytes + self.values.bytes

    @property
    def sums(self) -> SumsTile:
        """What the block makes."""
        extents = (self.region.scores.batches, self.region.scores.rows, self.region.channels)
        return SumsTile(self.rows, _line(self.region.channels), self.cores.padding, extents)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: the queries and the stages, and after them, in their place, the sums."""
        return max(self.queries.bytes + self.point.stages * self.stage_bytes, self.sums.bytes)

    @property
    def registers(self) -> int:
        """Of a thread, about as many as ptxas takes, up to the 255 that there are."""
        kept = self.depth_steps * 4 + self.point.keys // 2 + self.point.keys // 4 + self.channels // 2
        return min(255, kept + _OTHER_REGISTERS)

    @property
    def blocks_of_sm(self) -> int:
        """Blocks at a time whose registers an SM has, with a quarter to spare for what the estimate does not know."""
        return max(1, REGISTERS // (self.registers * 5 // 4 * self.point.threads))

    @property
    def row_tiles(self) -> int:
        """Blocks of each batch."""
        return -(-self.region.scores.rows // self.rows)

    @property
    def key_tiles(self) -> int:
        """Tiles of keys, all of which a block sees."""
        return -(-self.region.scores.columns // self.point.keys)

    @property
    def blocks(self) -> int:
        """Of the grid."""
        return self.region.scores.batches * self.row_tiles

    def why_not(self) -> str:
        """Return why the point does not suit the attention; "" where it does, and then its kernel is right."""
        if max(self.region.scores.depth, self.region.channels) > _WIDEST:
            return f"a query or a value has more than {_WIDEST} numbers"
        tiles = (self.queries, self.keys, self.values)
        if any(tile.line % tile.operand.many for tile in tiles):
            return "a copy is longer than a line"
        return ""


def points(region: AttentionRegion) -> Iterator[FlashPlan]:
    """Yield the plans that suit an attention, those that win where the estimate is the same first."""
    for warps, keys, stages in combinations((4, 8, 2, 1), (64, 32), (2, 3)):
        plan = FlashPlan(region, AttentionTile(warps, keys, stages))
        if not plan.why_not():
            yield plan


def choose(region: AttentionRegion, device: CudaDevice) -> FlashPlan:
    """Return the plan whose estimate is lowest.

    Raises:
        Declined: No point suits the attention, or none fits the device.
    """
    return fastest(points(region), lambda plan: estimate(plan, device))


def estimate(plan: FlashPlan, device: CudaDevice) -> float | None:
    """Return the time of a plan in seconds, a roofline of each wave of blocks as for products, with the exponentials on
    top of them; None where a block does not fit the device, or would spill."""
    at_once = device.blocks_at_once(plan.point.threads, plan.registers, plan.shared_bytes)
    if not at_once or plan.registers == 255:
        return None
    seconds = waves_s(plan.blocks, at_once, device, lambda blocks: _wave_s(plan, device, blocks))
    scores, channels = plan.region.scores, plan.region.channels
    elements = scores.batches * (scores.rows + scores.columns) * (scores.depth + channels)
    return max(seconds, device.floor(0, scores.left.item_bytes * elements).seconds)


def _wave_s(plan: FlashPlan, device: CudaDevice, blocks: int) -> float:
    """Return how long an SM takes for so many blocks at once."""
    keys = plan.key_tiles * plan.point.keys
    busy = min(1.0, plan.point.warps * blocks / device.schedulers)
    depth, channels = plan.depth_steps * 16, plan.channels
    multiplying = 2 * plan.rows * keys * (depth + channels) / (device.float16_gflops / device.sms * busy)
    exponentials = plan.rows * keys * device.score_operations / (device.float32_gflops / device.sms * busy)
    brought = plan.key_tiles * plan.stage_bytes
    read = brought * plan.point.warps
    moved = max((brought + read) / device.shared_gbs, brought / device.l2_gbs)
    return blocks * 1e-9 * max(multiplying + exponentials, moved)


def _line(extent: int) -> int:
    """Return a power of two that has so many numbers, at least the 16 of a step."""
    return max(16, 1 << (extent - 1).bit_length())
