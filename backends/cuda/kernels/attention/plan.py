"""How an attention is divided among blocks, warps and tiles of keys, and what a point takes of a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as combinations

from backends.cuda.devices import REGISTERS, WARP, CudaDevice
from backends.cuda.kernels.attention.products import WARP_ROWS, FloatProducts, TensorProducts, WarpProducts, size
from backends.cuda.kernels.attention.region import AttentionRegion
from backends.cuda.kernels.fastest import PointTime, fastest, waves_s
from backends.cuda.kernels.matmul.choose import choose as choose_product
from backends.cuda.kernels.matmul.choose import estimate as estimate_product
from backends.cuda.kernels.matmul.cores import Cores, FloatUnits, TensorCores
from backends.cuda.kernels.matmul.read import SumOfProducts
from backends.cuda.kernels.matmul.sums import SumsTile
from backends.cuda.kernels.matmul.tile import Tile

_WIDEST = 224
"""Numbers of a query, a key or a value."""
WORD_BYTES = 4
"""Of a number in the list of tiles."""
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
    """An attention at one point.

    Attributes:
        cores: What multiplies.
    """

    region: AttentionRegion
    cores: Cores
    point: AttentionTile

    @property
    def products(self) -> WarpProducts:
        """How a warp multiplies."""
        if isinstance(self.cores, TensorCores):
            return TensorProducts(self.cores)
        assert isinstance(self.cores, FloatUnits)
        return FloatProducts(self.cores, 1 if self.region.scores.right.by_depth else 4)

    @property
    def rows(self) -> int:
        """Queries of a block."""
        return self.point.warps * WARP_ROWS

    @property
    def queries(self) -> Tile:
        """The block's queries; so for `keys` and `values`, of which each stage has a tile."""
        left = self.region.scores.left
        return Tile(left, self.rows, _line(self.region.scores.depth), self.cores.swizzle(left))

    @property
    def keys(self) -> Tile:
        right = self.region.scores.right
        return Tile(right, self.point.keys, _line(self.region.scores.depth), self.cores.swizzle(right))

    @property
    def values(self) -> Tile:
        return Tile(self.region.values, _line(self.channels), self.point.keys)

    @property
    def weights(self) -> Tile:
        """The weights of a warp in shared memory, which lie as its queries do, but for float32 in no memory at all."""
        return Tile(self.region.scores.left, WARP_ROWS, self.point.keys, swizzle=2)

    @property
    def weight_bytes(self) -> int:
        """Size of the weights of a warp in shared memory."""
        return self.weights.bytes if isinstance(self.cores, FloatUnits) else 0

    @property
    def depth(self) -> int:
        """Numbers of a query that are multiplied: whole steps."""
        return -(-self.region.scores.depth // self.cores.step) * self.cores.step

    @property
    def channels(self) -> int:
        """Numbers of a value that are multiplied: so many as a warp takes at once."""
        unit = max(16, self.cores.units(self.region.scores.left, self.region.values)[1])
        return -(-self.region.channels // unit) * unit

    @property
    def stage_bytes(self) -> int:
        """Size of what one stage brings."""
        return self.keys.bytes + self.values.bytes

    @property
    def sums(self) -> SumsTile:
        """What the block makes."""
        extents = (self.region.scores.batches, self.region.scores.rows, self.region.channels)
        return SumsTile(self.rows, _line(self.channels), self.cores.padding, extents)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: the queries, the stages and weights, a list of tiles, and after them, in their
        place, the sums."""
        return max(self.list_begin + (2 * WORD_BYTES * self.key_tiles if self.lists_tiles else 0), self.sums.bytes)

    @property
    def weights_begin(self) -> int:
        """Where in shared memory the weights begin."""
        return self.queries.bytes + self.point.stages * self.stage_bytes

    @property
    def list_begin(self) -> int:
        """Where in shared memory there is for each tile of keys whether it is looked at, then which ones are."""
        return self.weights_begin + self.point.warps * self.weight_bytes

    @property
    def lists_tiles(self) -> bool:
        """Whether a mask may leave out whole tiles."""
        return self.region.is_masked and self.key_tiles > 1

    @property
    def registers(self) -> int:
        """Of a thread, about as many as ptxas takes, up to the 255 that there are."""
        keys, products = self.point.keys, self.products
        kept = products.held_registers(self.depth) + products.weight_registers(keys, self.channels)
        return min(255, kept + size(keys) + size(self.channels) + _OTHER_REGISTERS)

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
        """Tiles of keys, all of which a block sees but for those that a mask leaves out."""
        return -(-self.region.scores.columns // self.point.keys)

    @property
    def blocks(self) -> int:
        """Of the grid."""
        return self.region.scores.batches * self.row_tiles

    def __str__(self) -> str:
        point = self.point
        return f"{point.warps} warps of {WARP_ROWS} queries, tiles of {point.keys} keys, {point.stages} stages"

    def why_not(self) -> str:
        """Return why the point does not suit the attention; "" where it does, and then its kernel is right."""
        if max(self.region.scores.depth, self.region.channels) > _WIDEST:
            return f"a query or a value has more than {_WIDEST} numbers"
        tiles = (self.queries, self.keys, self.values)
        if any(tile.line % tile.operand.many for tile in tiles):
            return "a copy is longer than a line"
        if isinstance(self.cores, FloatUnits) and not self.queries.operand.by_depth:
            return "the numbers of a query do not lie next to each other"
        return ""


def points(region: AttentionRegion, cores: Cores) -> Iterator[FlashPlan]:
    """Yield the plans that suit an attention, those that win where the estimate is the same first."""
    for warps, keys, stages in combinations((4, 8, 2, 1), (64, 32), (2, 3)):
        plan = FlashPlan(region, cores, AttentionTile(warps, keys, stages))
        if not plan.why_not():
            yield plan


def choose(region: AttentionRegion, cores: Cores, device: CudaDevice) -> FlashPlan:
    """Return the plan whose estimate is lowest.

    Raises:
        Declined: No point suits the attention, or none fits the device.
    """
    return fastest(points(region, cores), lambda plan: _estimate_point(plan, device))


def estimate(plan: FlashPlan, device: CudaDevice) -> float | None:
    """Return the time of a plan in seconds, a roofline of each wave of blocks as for products, with the exponentials on
    top of them; None where a block does not fit the device, or would spill."""
    time = _estimate_point(plan, device)
    return None if time is None else time.seconds


def _estimate_point(plan: FlashPlan, device: CudaDevice) -> PointTime | None:
    at_once = device.blocks_at_once(plan.point.threads, plan.registers, plan.shared_bytes)
    if not at_once or plan.registers == 255:
        return None
    waves = waves_s(plan.blocks, at_once, device, lambda blocks: _wave_s(plan, device, blocks))
    scores, channels = plan.region.scores, plan.region.channels
    elements = scores.batches * (scores.rows + scores.columns) * (scores.depth + channels)
    moved = device.floor(0, scores.left.item_bytes * elements + plan.region.held_mask_bytes)
    return PointTime(max(waves, moved.seconds), waves)


def estimate_apart(plan: FlashPlan, device: CudaDevice) -> float:
    """Return the time of the same attention in three kernels, in seconds: two products, each at the point that would be
    chosen, rows that read scores and masks and write weights, and two starts more; without a softmax in two kernels, of
    which the first computes what is elementwise.

    Raises:
        Declined: No point suits one of the products.
    """
    region, seconds = plan.region, device.kernel_s
    for product, sums in ((region.scores, region.made), (region.weighted, region.sums)):
        made = product.batches * product.rows * product.columns
        moved = product.held_bytes + product.left.item_bytes * made
        alone = SumOfProducts(**vars(product), sums=sums, epilogue=region.epilogue, moved_bytes=moved)
        found = estimate_product(choose_product(alone, plan.cores, device), device)
        assert found is not None
        seconds += found
    weights = region.scores.batches * region.scores.rows * region.scores.columns
    masked = 1e-9 * region.mask_bytes * weights / (device.l2_gbs * device.sms)
    if not region.is_softmax:
        return seconds + max(masked, device.floor(region.operations * weights, region.held_mask_bytes).seconds)
    moved = 2 * region.scores.left.item_bytes * weights + region.held_mask_bytes
    return seconds + device.kernel_s + max(masked, device.floor(device.score_operations * weights, moved).seconds)


def _wave_s(plan: FlashPlan, device: CudaDevice, blocks: int) -> float:
    """Return how long an SM takes for so many blocks at once."""
    keys = plan.key_tiles * plan.point.keys
    busy = min(1.0, plan.point.warps * blocks / device.schedulers)
    multiplying = 2 * plan.rows * keys * (plan.depth + plan.channels) / (plan.cores.gflops(device) / device.sms * busy)
    operations = device.score_operations if plan.region.is_softmax else plan.region.operations
    exponentials = plan.rows * keys * operations / (device.float32_gflops / device.sms * busy)
    brought = plan.key_tiles * plan.stage_bytes
    read = brought * plan.point.warps
    masked = plan.rows * keys * plan.region.mask_bytes
    moved = max((brought + read) / device.shared_gbs, (brought + masked) / device.l2_gbs)
    return blocks * 1e-9 * max(multiplying + exponentials, moved)


def _line(extent: int) -> int:
    """Return a power of two that has so many numbers, at least the 16 of a step."""
    return max(16, 1 << (extent - 1).bit_length())
