"""How a pointwise and a depthwise convolution pass through one kernel, and whether that beats two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod

from backends.cpu.anchors.blocking import (
    BYTES_PER_CYCLE,
    L2_BYTES_PER_CYCLE,
    TASK_CYCLES,
    choose_blocking,
    chunk_counts,
)
from backends.cpu.anchors.depthwise import Depthwise
from backends.cpu.anchors.estimate import Estimate
from backends.cpu.anchors.extents import Extents
from backends.cpu.anchors.pointwise_depthwise_stages import PairSizes
from backends.cpu.anchors.register_tile import LOADS_PER_CYCLE, TILE_OVERHEAD, RegisterTile, tiles, total_cycles
from backends.cpu.anchors.roles import Roles
from backends.cpu.anchors.split import Split
from backends.cpu.templates.result import NotRecognized
from backends.cpu.templates.space import Space
from fusion.context import Machine
from partition.access import DEPTHWISE

_MOST_VECTORS = 4
_USUAL_VECTORS = 2
"""Vectors of a block, by measurement and not by the estimate: never more than 3% behind the best number. On one core
of Zen 4, 56x56x144 takes 369, 344, 337 and 349 us with 1 to 4, 14x14x384 takes 99, 101, 107 and 111."""
_ACCUMULATORS = 14
"""Registers of the window's sums. With 28 of them, 28x28x192 took 139 us, with 14 136 (one thread, Zen 4)."""
_MOST_TAPS = 9
"""A larger window is faster alone: 5x5 on 28x28x240 took 113 us in two kernels and 124 in one, on 14x14x672 166 and
171."""
_LAUNCH_CYCLES = 8_000
"""A kernel's start on all threads and the wait for the last, about 2.5 us."""


@dataclass(frozen=True)
class PairPlan:
    """How the loops are cut.

    Attributes:
        tile: Pixels times vectors of channels of the pointwise product in registers; a block of channels has as many
            vectors.
        columns: Pixels of the depthwise convolution in registers.
        bands, chunks: Cuts of the rows and of the blocks; each pair is a parallel task.
        cycles: Estimate for the slowest thread.
    """

    tile: RegisterTile
    columns: int
    bands: int
    chunks: int
    cycles: float

    def __str__(self) -> str:
        return f"{self.tile}, {self.columns} columns rows/{self.bands} channels/{self.chunks}"


def pair_space(sizes: PairSizes, machine: Machine, threads: int) -> Space[PairPlan]:
    """Return the points for one kernel.

    Raises:
        NotRecognized: There are none.
    """
    if _skips_rows(sizes):
        raise NotRecognized("the window skips rows")
    return Space(plan_pair(sizes, machine, threads), lambda: plans(sizes, machine, threads))


@cache
def plan_pair(sizes: PairSizes, machine: Machine, threads: int) -> PairPlan:
    """Return the plan for blocks of the usual width that is estimated to take the fewest cycles."""
    width = min(_USUAL_VECTORS, -(-sizes.channels // machine.vector_lanes))
    usual = (plan for plan in plans(sizes, machine, threads) if plan.tile.vectors == width)
    return min(usual, key=lambda plan: plan.cycles)


def plans(sizes: PairSizes, machine: Machine, threads: int) -> Iterator[PairPlan]:
    """Yield the widths of a block of channels, each with every cut of rows and blocks into tasks."""
    vectors = -(-sizes.channels // machine.vector_lanes)
    for width in range(1, min(_MOST_VECTORS, vectors) + 1):
        block = _Block.of(sizes, machine, width)
        blocks = -(-vectors // width)
        for bands, chunks in product(chunk_counts(sizes.rows, threads), chunk_counts(blocks, threads)):
            rows, many = Split(sizes.rows, bands).longest, Split(blocks, chunks).longest
            tasks = sizes.batch * bands * chunks
            cycles = -(-tasks // threads) * (block.cycles(rows, many) + TASK_CYCLES) + _foreign_cycles(sizes, chunks)
            yield PairPlan(block.tile, block.columns, bands, chunks, cycles)


def decline_one_kernel(sizes: PairSizes, machine: Machine, threads: int) -> str:
    """Return why two kernels are the faster form; "" where one is."""
    if not all((sizes.batch, sizes.rows, sizes.columns, sizes.depth)):
        return "the image is empty"
    if _skips_rows(sizes):
        return "the window skips rows"
    if prod(sizes.window.kernel) > _MOST_TAPS:
        return f"a window of {prod(sizes.window.kernel)} taps is faster alone"
    return estimate(sizes, machine, threads).reason


def estimate(sizes: PairSizes, machine: Machine, threads: int) -> Estimate:
    """Return what both forms are estimated to take.

    Raises:
        NotRecognized: One kernel cannot be.
    """
    together = pair_space(sizes, machine, threads).default.cycles
    return Estimate(together, _cycles_apart(sizes, machine, threads), 2)


def _foreign_cycles(sizes: PairSizes, chunks: int) -> float:
    """Return what it takes, here and in the kernel behind, that a core has some channels of all rows and not all
    channels of some, as the kernels before and behind have: lines come from the L2 of another core, not from its own.

    28x28x192, two threads, in a network: the kernel before took 14 us with this one cut by channels, 9 cut by rows, the
    one behind 47 to 52 and 44.
    """
    image = sizes.height * sizes.width * sizes.depth
    result = sizes.rows * sizes.columns * sizes.channels / chunks
    size = 4 * sizes.batch * (image + result) * (1 - 1 / chunks)
    return size / BYTES_PER_CYCLE - size / L2_BYTES_PER_CYCLE


def _skips_rows(sizes: PairSizes) -> bool:
    """Return whether there are rows of the image under no window."""
    return bool(sizes.window.strides[0] > sizes.ring_rows)


@dataclass(frozen=True)
class _Block:
    """A block of channels of all rows."""

    sizes: PairSizes
    machine: Machine
    tile: RegisterTile
    columns: int

    @staticmethod
    def of(sizes: PairSizes, machine: Machine, vectors: int) -> _Block:
        """Return the block of `vectors` vectors, with the register tiles that cost least by themselves."""
        found = [tile for tile in tiles(sizes.width, 1, vectors, machine.vector_registers) if tile.vectors == vectors]
        tile = min(found, key=lambda tile: total_cycles(tile, sizes.width, 1, vectors, sizes.depth))
        return _Block(sizes, machine, tile, Split.of(sizes.columns, _ACCUMULATORS // vectors).longest)

    def cycles(self, rows: int, many: int) -> float:
        """Return the estimate for `rows` rows of the result and `many` blocks of channels."""
        sizes, tile = self.sizes, self.tile
        under = min(sizes.window.rows_under(rows), sizes.height)
        image = 4 * under * sizes.width * sizes.depth
        passes = 1 if image <= self.machine.l2_bytes // 2 else many
        weights = 4 * tile.vectors * self.machine.vector_lanes * sizes.depth
        convolved = sum(
            self._window_cycles(columns) * many_tiles
            for columns, many_tiles in Split.of(sizes.columns, self.columns).sizes()
        )
        block = under * total_cycles(tile, sizes.width, 1, tile.vectors, sizes.depth) + rows * convolved
        return float(many * block + (many * weights + passes * image) / BYTES_PER_CYCLE)

    def _window_cycles(self, columns: int) -> float:
        """Return the estimate for one register tile of the depthwise convolution, each of whose products reads memory
        once, and each tap of which once more."""
        taps, vectors = prod(self.sizes.window.kernel), self.tile.vectors
        return taps * (columns + 1) * vectors / LOADS_PER_CYCLE + TILE_OVERHEAD + 2 * columns * vectors


def _cycles_apart(sizes: PairSizes, machine: Machine, threads: int) -> float:
    """Return the estimated cycles of the two kernels, between which the expanded image is written and read."""
    pixels = sizes.height * sizes.width
    extents = Extents(
        outer=1, groups=1, height=sizes.batch * pixels, width=1, channels=sizes.channels, taps=(), depth=sizes.depth,
        lanes=machine.vector_lanes, input_bytes=4 * sizes.batch * pixels * sizes.depth,
    )  # fmt: skip
    expanded = choose_blocking(extents, machine, threads).cycles
    share = 4 * sizes.batch * pixels * sizes.channels / threads
    traffic = 2 * share / (L2_BYTES_PER_CYCLE if share <= machine.l2_bytes // 2 else BYTES_PER_CYCLE)
    shape = (sizes.batch, sizes.rows, sizes.columns, sizes.channels)
    roles = Roles(DEPTHWISE, {"window": sizes.window.annotation()}, (), shape, ())
    convolved = Depthwise().space(roles, machine, threads).default.cycles
    return float(expanded + traffic + convolved + _LAUNCH_CYCLES)
