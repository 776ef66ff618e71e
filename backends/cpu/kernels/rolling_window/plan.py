"""How a window and the convolutions around it pass through one kernel, and whether that beats several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import prod

from backends.cpu.costs import (
    L2_BYTES_PER_CYCLE,
    LAUNCH_CYCLES,
    LOADS_PER_CYCLE,
    MEMORY_BYTES_PER_CYCLE,
    TASK_CYCLES,
    TILE_CYCLES,
)
from backends.cpu.kernels.rolling_window.costs import PROJECTION_MARGIN
from backends.cpu.kernels.rolling_window.read import RollingSizes, RollingStages
from backends.cpu.kernels.shared.blocking import choose_blocking, chunk_counts
from backends.cpu.kernels.shared.chains.several_kernels import cycles_alone, passing_cycles
from backends.cpu.kernels.shared.convolution.depthwise_tiles import depthwise_tiles, window_taps
from backends.cpu.kernels.shared.register_tile import RegisterTile, choose, tiles, total_cycles
from backends.cpu.kernels.shared.split import Split
from backends.cpu.kernels.shared.stitching.plan import stitched_work
from backends.cpu.machine import Machine
from backends.tensorir.estimate import Estimate
from backends.tensorir.space import Space
from fusion.declined import Declined

_MOST_VECTORS = 4
_USUAL_VECTORS = 2
"""Vectors of a block, by measurement and not by the estimate: never more than 3% behind the best number. On one core
of Zen 4, 56x56x144 takes 369, 344, 337 and 349 us with 1 to 4, 14x14x384 takes 99, 101, 107 and 111."""
_ACCUMULATORS = 14
"""Registers of the window's sums. With 28 of them, 28x28x192 took 139 us, with 14 136 (one thread, Zen 4)."""
_MOST_TAPS = 9
"""A larger window is faster alone: 5x5 on 28x28x240 took 113 us in two kernels and 124 in one, on 14x14x672 166 and
171."""


@dataclass(frozen=True)
class RollingPlan:
    """How the loops are cut.

    Attributes:
        tile: Pixels of a row times vectors of channels of the convolution before the window in registers; a block of
            channels has as many vectors.
        columns: Pixels of the window's result in registers.
        bands, chunks: Cuts of the rows and of the blocks; each pair is a parallel task.
        cycles: Estimate for the slowest thread.
    """

    tile: RegisterTile
    columns: int
    bands: int
    chunks: int
    cycles: float

    def axes(self) -> dict[str, int]:
        return {**self.tile.axes("tile"), "columns": self.columns, "bands": self.bands, "chunks": self.chunks}

    def __str__(self) -> str:
        return f"{self.tile}, {self.columns} columns rows/{self.bands} channels/{self.chunks}"


def rolling_space(sizes: RollingSizes, machine: Machine, threads: int) -> Space[RollingPlan]:
    """Return the points for one kernel.

    Raises:
        Declined: There are none.
    """
    if sizes.skips_rows:
        raise Declined("the window skips rows")
    return Space(plan_rolling(sizes, machine, threads), lambda: plans(sizes, machine, threads))


@cache
def plan_rolling(sizes: RollingSizes, machine: Machine, threads: int) -> RollingPlan:
    """Return the plan for blocks of the usual width that is estimated to take the fewest cycles."""
    width = min(_USUAL_VECTORS, -(-sizes.channels // machine.vector_lanes))
    usual = (plan for plan in plans(sizes, machine, threads) if plan.tile.vectors == width)
    return min(usual, key=lambda plan: plan.cycles)


def plans(sizes: RollingSizes, machine: Machine, threads: int) -> Iterator[RollingPlan]:
    """Yield the widths of a block of channels, each with every cut of rows and blocks into tasks; a projection needs
    all blocks of a row."""
    vectors = -(-sizes.channels // machine.vector_lanes)
    for width in range(1, min(_MOST_VECTORS, vectors) + 1):
        block = _Block.of(sizes, machine, width)
        blocks = -(-vectors // width)
        cuts = [1] if sizes.projected else chunk_counts(blocks, threads)
        for bands, chunks in product(chunk_counts(sizes.rows, threads), cuts):
            rows, many = Split(sizes.rows, bands).longest, Split(blocks, chunks).longest
            task = block.cycles(rows, many) + _projection_cycles(sizes, machine, rows) + TASK_CYCLES
            tasks = sizes.batch * bands * chunks
            cycles = -(-tasks // threads) * task + _foreign_cycles(sizes, chunks)
            yield RollingPlan(block.tile, block.columns, bands, chunks, cycles)


def projection_tile(sizes: RollingSizes, machine: Machine) -> RegisterTile:
    """Return the register tile of the projection of a row of pixels."""
    vectors = -(-sizes.projected // machine.vector_lanes)
    return choose(sizes.columns, 1, vectors, sizes.channels, machine.vector_registers)


def _projection_cycles(sizes: RollingSizes, machine: Machine, rows: int) -> float:
    """Return the estimate for the projection of `rows` rows, for each of which all weights pass by once more."""
    if not sizes.projected:
        return 0.0
    vectors = -(-sizes.projected // machine.vector_lanes)
    compute = total_cycles(projection_tile(sizes, machine), sizes.columns, 1, vectors, sizes.channels)
    weights = 4 * sizes.channels * (sizes.steps + sizes.projected)
    held = weights + 4 * sizes.buffered_rows() * sizes.buffered_columns * sizes.channels
    again = L2_BYTES_PER_CYCLE if held <= machine.l2_bytes // 2 else MEMORY_BYTES_PER_CYCLE
    return rows * (compute + weights / again) + weights / MEMORY_BYTES_PER_CYCLE


def why_not_fused(stages: RollingStages, machine: Machine, threads: int) -> str:
    """Return why several kernels are the faster form; "" where one is."""
    sizes = stages.sizes
    if not all((sizes.batch, sizes.rows, sizes.columns)):
        return "the image is empty"
    if sizes.skips_rows:
        return "the window skips rows"
    if prod(sizes.window.kernel) > _MOST_TAPS:
        return f"a window of {prod(sizes.window.kernel)} taps is faster alone"
    return estimate(stages, machine, threads).reason


def estimate(stages: RollingStages, machine: Machine, threads: int) -> Estimate:
    """Return what both forms are estimated to take.

    Raises:
        Declined: One kernel cannot be.
    """
    sizes = stages.sizes
    together = rolling_space(sizes, machine, threads).default.cycles
    window = _window_alone(stages, machine, threads)
    if stages.making is None:
        apart, kernels = window + sizes.batch * sizes.input_bytes / threads / MEMORY_BYTES_PER_CYCLE, 1
    else:
        image = sizes.batch * sizes.height * sizes.width * sizes.channels
        made = cycles_alone(stages.making, machine, threads)
        apart, kernels = made + passing_cycles(image, machine, threads) + window + LAUNCH_CYCLES, 2
    if stages.projection is None:
        return Estimate(together, apart, kernels)
    pair = rolling_space(replace(sizes, projected=0), machine, threads).default.cycles if sizes.steps else apart
    projected = choose_blocking(stages.projection.product(machine).extents, machine, threads).cycles
    between = passing_cycles(sizes.batch * sizes.rows * sizes.columns * sizes.channels, machine, threads)
    kernels = 2 if pair <= apart else kernels + 1
    several = min(pair, apart) + between + projected + LAUNCH_CYCLES
    return Estimate(together, several, kernels, PROJECTION_MARGIN)


def _foreign_cycles(sizes: RollingSizes, chunks: int) -> float:
    """Return what it takes, here and in the kernel behind, that a core has some channels of all rows and not all
    channels of some, as the kernels before and behind have: lines come from the L2 of another core, not from its own.

    28x28x192, two threads, in a network: the kernel before took 14 us with this one cut by channels, 9 cut by rows, the
    one behind 47 to 52 and 44.
    """
    result = 4 * sizes.rows * sizes.columns * sizes.channels / chunks
    size = sizes.batch * (sizes.input_bytes + result) * (1 - 1 / chunks)
    return float(size / MEMORY_BYTES_PER_CYCLE - size / L2_BYTES_PER_CYCLE)


@dataclass(frozen=True)
class _Block:
    """A block of channels of all rows."""

    sizes: RollingSizes
    machine: Machine
    tile: RegisterTile
    columns: int

    @staticmethod
    def of(sizes: RollingSizes, machine: Machine, vectors: int) -> _Block:
        """Return the block of `vectors` vectors, with the register tiles that cost least by themselves."""
        found = [tile for tile in tiles(1, sizes.width, vectors, machine.vector_registers) if tile.vectors == vectors]
        tile = min(found, key=lambda tile: total_cycles(tile, 1, sizes.width, vectors, sizes.steps))
        columns = Split.of(sizes.columns, widest_window_tile(sizes, machine, vectors)).longest
        return _Block(sizes, machine, tile, columns)

    def cycles(self, rows: int, many: int) -> float:
        """Return the estimate for `rows` rows of the window's result and `many` blocks of channels."""
        sizes, tile = self.sizes, self.tile
        under = sizes.made_rows(rows)
        convolved = sum(
            self._window_cycles(columns) * many_tiles
            for columns, many_tiles in Split.of(sizes.columns, self.columns).sizes()
        )
        image = sizes.input_bytes * under / sizes.height
        if not sizes.steps:
            copied = 2 * under * sizes.width * tile.vectors / LOADS_PER_CYCLE
            return float(many * (copied + rows * convolved) + image / MEMORY_BYTES_PER_CYCLE)
        passes = 1 if image <= self.machine.l2_bytes // 2 or sizes.projected else many
        weights = 0 if sizes.projected else 4 * tile.vectors * self.machine.vector_lanes * sizes.steps
        block = under * total_cycles(tile, 1, sizes.width, tile.vectors, sizes.steps) + rows * convolved
        return float(many * block + (many * weights + passes * image) / MEMORY_BYTES_PER_CYCLE)

    def _window_cycles(self, columns: int) -> float:
        """Return the estimate for one register tile of the window, each of whose operations reads memory once, and each
        tap of which once more."""
        taps, vectors = prod(self.sizes.window.kernel), self.tile.vectors
        return taps * (columns + 1) * vectors / LOADS_PER_CYCLE + TILE_CYCLES + 2 * columns * vectors


def widest_window_tile(sizes: RollingSizes, machine: Machine, vectors: int) -> int:
    """Return how many pixels of so many vectors the window computes at a time at most, beside the weights of a row of
    it and a pixel."""
    weights = 0 if sizes.pools else window_taps(sizes.window, machine)
    return max(1, min(machine.vector_registers - weights - 1, _ACCUMULATORS) // vectors)


def open_vectors(sizes: RollingSizes, machine: Machine) -> int:
    """Return the vectors of a block of channels where images are of any size: fewer than usual where they leave no
    narrower block, which would take bodies of its own."""
    vectors = -(-sizes.channels // machine.vector_lanes)
    usual = min(_USUAL_VECTORS, vectors)
    whole = sizes.channels % machine.vector_lanes == 0 and vectors % usual != 0
    return 1 if whole else usual


def _window_alone(stages: RollingStages, machine: Machine, threads: int) -> float:
    sizes = stages.sizes
    if sizes.pools:
        return stitched_work([stages.stage], {stages.stage.buffer}, machine).space(threads).default.cycles
    shape = (sizes.batch, sizes.rows, sizes.columns, sizes.channels)
    return depthwise_tiles(shape, sizes.window, prod(sizes.window.kernel), machine, threads).default.cycles
