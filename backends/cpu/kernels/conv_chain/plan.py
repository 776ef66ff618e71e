"""How an image passes through two convolutions in one kernel, and whether that beats two kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from backends.cpu.costs import L2_BYTES_PER_CYCLE, LAUNCH_CYCLES, MEMORY_BYTES_PER_CYCLE, REGION_CYCLES, TASK_CYCLES
from backends.cpu.kernels.conv_chain.costs import CONV_CHAIN_MARGIN
from backends.cpu.kernels.conv_chain.read import ChainSizes, ChainStages
from backends.cpu.kernels.shared.blocking import chunk_counts
from backends.cpu.kernels.shared.chains.several_kernels import cycles_alone, passing_cycles
from backends.cpu.kernels.shared.register_tile import RegisterTile, cheapest_by_width, total_cycles
from backends.cpu.kernels.shared.split import Split
from backends.cpu.machine import Machine
from backends.tensorir.estimate import Estimate
from backends.tensorir.space import Space

_RowTiles = list[tuple[RegisterTile, float]]
"""With the cycles that each takes for a row of pixels."""
_PASSES = (1, 2, 4, 8)


@dataclass(frozen=True)
class ChainPlan:
    """How the loops are cut.

    Attributes:
        first, second: Register tiles of the convolutions, of pixels of one row.
        rows: Of the result in a pass, which begins with the rows of the image under them and reads all weights.
        bands: Cuts of the rows, each a parallel task.
        cycles: Estimate for the slowest thread.
    """

    first: RegisterTile
    second: RegisterTile
    rows: int
    bands: int
    cycles: float

    def axes(self) -> dict[str, int]:
        return {**self.first.axes("first"), **self.second.axes("second"), "rows": self.rows, "bands": self.bands}

    def __str__(self) -> str:
        return f"{self.first} then {self.second}, {self.rows} at a time, rows/{self.bands}"


def chain_space(chain: ChainStages, machine: Machine, threads: int) -> Space[ChainPlan]:
    """Return the register tiles of both, each with every cut of the rows into passes and tasks."""
    sizes = chain.sizes
    return Space(plan_chain(sizes, machine, threads), lambda: plans(sizes, machine, threads))


@cache
def plan_chain(sizes: ChainSizes, machine: Machine, threads: int) -> ChainPlan:
    """Return the plan that is estimated to take the fewest cycles, in which each convolution has its cheapest tile."""
    first, second = (min(tiles, key=lambda found: found[1]) for tiles in _tiles_of_both(sizes, machine))
    found = _plans(sizes, machine, threads, [first], [second])
    return min(found, key=lambda plan: plan.cycles)


def plans(sizes: ChainSizes, machine: Machine, threads: int) -> Iterator[ChainPlan]:
    """Yield, for each number of vectors in a register tile of either convolution, every cut into passes and bands."""
    return _plans(sizes, machine, threads, *_tiles_of_both(sizes, machine))


def _plans(
    sizes: ChainSizes, machine: Machine, threads: int, first: _RowTiles, second: _RowTiles
) -> Iterator[ChainPlan]:
    for rows, bands in product(_PASSES, chunk_counts(sizes.rows, threads)):
        band = Split(sizes.rows, bands).longest
        if rows > band:
            continue
        under, reads = sizes.made_rows(band), _reading_cycles(sizes, machine, band, rows)
        for (one, image_row), (other, row) in product(first, second):
            task = under * image_row + band * row + reads + TASK_CYCLES
            tasks = sizes.batch * bands
            cycles = -(-tasks // threads) * task + (REGION_CYCLES if tasks > 1 else 0)
            yield ChainPlan(one, other, rows, bands, cycles)


def _tiles_of_both(sizes: ChainSizes, machine: Machine) -> tuple[_RowTiles, _RowTiles]:
    first = _row_tiles(sizes.width, sizes.channels, sizes.steps, machine)
    return first, _row_tiles(sizes.columns, sizes.made, sizes.second_steps, machine)


def _row_tiles(width: int, channels: int, depth: int, machine: Machine) -> _RowTiles:
    """Return register tiles for a row of pixels, one for each number of vectors, and what the row takes in each."""
    vectors = -(-channels // machine.vector_lanes)
    found = cheapest_by_width(1, width, vectors, depth, machine.vector_registers)
    return [(tile, total_cycles(tile, 1, width, vectors, depth)) for tile in found]


def _reading_cycles(sizes: ChainSizes, machine: Machine, band: int, rows: int) -> float:
    """Return what it takes to read the image under a band, and the weights again for each pass of `rows` rows."""
    weights = 4 * (sizes.channels * sizes.steps + sizes.made * sizes.second_steps)
    lines = 4 * sizes.buffered_rows(rows) * sizes.buffered_columns * sizes.channels
    passes = 1 if weights + lines <= machine.l2_bytes // 2 else -(-band // rows)
    again = passes * lines if lines > machine.l2_bytes // 2 else 0
    image = sizes.input_bytes * sizes.made_rows(band) / sizes.height
    return float((passes * weights + again) / MEMORY_BYTES_PER_CYCLE + image / L2_BYTES_PER_CYCLE)


def estimate(chain: ChainStages, machine: Machine, threads: int) -> Estimate:
    """Return what both forms are estimated to take."""
    sizes = chain.sizes
    together = chain_space(chain, machine, threads).default.cycles
    between = passing_cycles(sizes.batch * sizes.height * sizes.width * sizes.channels, machine, threads)
    alone = [cycles_alone(conv, machine, threads) for conv in (chain.first, chain.second)]
    return Estimate(together, sum(alone) + between + LAUNCH_CYCLES, 2, CONV_CHAIN_MARGIN)
