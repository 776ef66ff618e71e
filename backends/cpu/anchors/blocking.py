"""How many chunks of rows and panels become parallel tasks: balance between cores against bytes read more than once."""

from __future__ import annotations

from itertools import product

from backends.cpu.anchors.contraction import Blocking
from backends.cpu.anchors.extents import Extents
from backends.cpu.anchors.register_tile import FMA_PER_CYCLE, choose
from backends.cpu.anchors.split import Split
from fusion.context import Machine

BYTES_PER_CYCLE = 8.0  # one core from L3 or memory, the slower of the two kinds of machines measured
TASK_CYCLES = 600  # hand a task to a worker and leave it


def choose_blocking(extents: Extents, machine: Machine, threads: int) -> Blocking:
    """Return register tile and task grid of a contraction."""
    outer, groups, height, width = extents.outer, extents.groups, extents.height, extents.width
    vectors, depth = extents.vectors, extents.steps
    tile = choose(height, width, vectors, depth, machine.vector_registers)
    rows = Split.of(height, tile.height).count
    panels = -(-vectors // tile.vectors) * groups
    weight_bytes = groups * vectors * extents.lanes * depth * 4
    compute = outer * groups * height * width * vectors * depth / FMA_PER_CYCLE

    def cycles(grid: tuple[int, int]) -> float:
        row_chunks, panel_chunks = grid
        tasks = outer * row_chunks * panel_chunks
        share = Split(rows, row_chunks).longest / rows * Split(panels, panel_chunks).longest / panels / outer
        # beyond half of L2 the chunk's rows are read again for every panel
        spill = max(1.0, extents.input_bytes / row_chunks / (machine.l2_bytes / 2))
        traffic = outer * (weight_bytes * row_chunks + extents.input_bytes * panel_chunks * spill)
        return compute * share * -(-tasks // threads) + (traffic / BYTES_PER_CYCLE + tasks * TASK_CYCLES) / threads

    grids = product(chunk_counts(rows, threads), chunk_counts(panels, threads))
    row_chunks, panel_chunks = best = min(grids, key=cycles)
    panel_bytes = tile.vectors * extents.lanes * depth * 4
    block = min(max(1, machine.l2_bytes // 2 // panel_bytes), Split(panels, panel_chunks).longest)
    return Blocking(tile, row_chunks, panel_chunks, block, cycles(best))


def chunk_counts(extent: int, threads: int) -> list[int]:
    """Return the numbers of chunks worth looking at: one, and multiples of the threads."""
    return sorted({min(extent, count) for count in (1, *(threads * 2**power for power in range(6)))})
