"""How many chunks of rows and panels become parallel tasks: balance between cores against bytes read more than once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import product

from backends.cpu import amx, byte_dots
from backends.cpu.costs import (
    COPY_ROW_CYCLES,
    FIRST_TILES_CYCLES,
    FMA_PER_CYCLE,
    L2_BYTES_PER_CYCLE,
    MEMORY_BYTES_PER_CYCLE,
    REGION_CYCLES,
    SPLIT_ROW_CYCLES,
    SPLIT_WEIGHT_CYCLES,
    TASK_CYCLES,
    TERM_SUM_CYCLES,
    TERMS_CYCLES,
    WHOLE_TILES_CYCLES,
)
from backends.cpu.kernels.shared.blocking_features import blocking_features
from backends.cpu.kernels.shared.contraction import Blocking, tile_form, tile_steps
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.register_tile import RegisterTile, RowSets, cheapest_by_width, tiles, total_cycles
from backends.cpu.kernels.shared.split import Split
from backends.cpu.kernels.shared.tile_products import BLOCK_VECTORS
from backends.cpu.kernels.shared.weights_in_place import first_pass, other_passes, split_cycles
from backends.cpu.machine import Machine
from backends.tensorir.space import Space


@cache
def choose_blocking(extents: Extents, machine: Machine, threads: int) -> Blocking:
    """Return register tile and task grid of a contraction: of each width the tile that costs least by itself, and of
    these the one with the best grid.

    The tile that is best for one thread may leave no even share for many: with it, 197x384x1536 was estimated to take
    twice as long on 24 threads.
    """
    return min(likely_blockings(extents, machine, threads), key=lambda blocking: blocking.cycles)


def likely_blockings(extents: Extents, machine: Machine, threads: int) -> Iterator[Blocking]:
    """Yield, with every grid, of each width the tile that costs least by itself."""
    sets = RowSets.of(extents.row_pitch, machine)
    found = cheapest_by_width(
        extents.height, extents.width, extents.vectors, extents.steps, machine.vector_registers, sets=sets
    )
    yield from (grid for tile in found for grid in _grids(extents, tile, machine, threads))
    yield from tile_blockings(extents, machine, threads)


def choose_grid(extents: Extents, tile: RegisterTile, machine: Machine, threads: int) -> Blocking:
    """Return the best task grid of a contraction in such tiles."""
    return min(_grids(extents, tile, machine, threads), key=lambda blocking: blocking.cycles)


def blocking_space(extents: Extents, machine: Machine, threads: int) -> Space[Blocking]:
    """Return every register tile with every grid."""

    def every() -> Iterator[Blocking]:
        for tile in tiles(extents.height, extents.width, extents.vectors, machine.vector_registers):
            yield from _grids(extents, tile, machine, threads)
        yield from tile_blockings(extents, machine, threads)

    features = partial(blocking_features, extents, machine, threads)
    return Space(choose_blocking(extents, machine, threads), every, features)


_WHOLE = (WHOLE_TILES_CYCLES, COPY_ROW_CYCLES)
_TILE_CYCLES = {"float32": (TERMS_CYCLES, 2 * SPLIT_ROW_CYCLES), "bfloat16": _WHOLE, byte_dots.LEFT: _WHOLE}
"""What a step of k takes in tiles: of 32 rows and a vector, and of a row, by the dtype of rows."""


def tile_blockings(extents: Extents, machine: Machine, threads: int, *, splits: bool = False) -> Iterator[Blocking]:
    """Yield the cuts of a contraction that is multiplied in tiles, where the machine may; weights are packed before the
    run, or each task `splits` those of float32 into terms."""
    if not extents.in_tiles:
        return
    vectors, steps, numbers = extents.vectors, tile_steps(extents).count, tile_form(extents).numbers
    step_cycles, row_cycles = _TILE_CYCLES[extents.dtype]
    tile = RegisterTile(min(max(amx.ROWS // extents.width, 1), extents.height), extents.width, 1)
    rows = Split.of(extents.height, tile.height)
    step_bytes = 4 * amx.DEPTH * extents.lanes if splits else numbers.weight_bytes
    weight_bytes = step_bytes * vectors * steps * extents.products
    split_cycles = SPLIT_WEIGHT_CYCLES if splits else 0.0
    for row_chunks, panel_chunks in product(chunk_counts(rows.count, threads), chunk_counts(vectors, threads)):
        if extents.whole_rows and panel_chunks > 1:
            continue
        longest = Split(rows.count, row_chunks).longest * rows.longest
        pixels, panels = longest * extents.width, Split(vectors, panel_chunks).longest
        blocks = -(-panels // BLOCK_VECTORS)
        cycles = -(-pixels // amx.ROWS) * panels * steps * step_cycles
        cycles += pixels * steps * row_cycles * blocks + panels * steps * amx.DEPTH * split_cycles
        cycles += pixels * panels * TERM_SUM_CYCLES
        tasks = extents.outer * row_chunks * panel_chunks
        cycles = (cycles * extents.products + extents.row_cycles * longest) * -(-tasks // threads)
        traffic = weight_bytes * row_chunks + extents.input_bytes * _reads(panel_chunks)
        busy = min(tasks, threads)
        cycles += (extents.outer * traffic / MEMORY_BYTES_PER_CYCLE + tasks * TASK_CYCLES) / busy
        cycles += FIRST_TILES_CYCLES + (REGION_CYCLES if tasks > 1 else 0)
        yield Blocking(tile, row_chunks, panel_chunks, panels, cycles, in_tiles=True)


def _reads(panel_chunks: int) -> float:
    """Return how many times rows are read, in what memory takes for one: a task with all panels of its rows reads them
    from its own L2, where the kernel before has left them."""
    return panel_chunks if panel_chunks > 1 else MEMORY_BYTES_PER_CYCLE / L2_BYTES_PER_CYCLE


def _grids(extents: Extents, tile: RegisterTile, machine: Machine, threads: int) -> Iterator[Blocking]:
    """Yield the cuts of rows and panels into tasks worth looking at."""
    outer, vectors, depth = extents.outer, extents.vectors, extents.steps
    rows = Split.of(extents.height, tile.height).count
    panels = -(-vectors // tile.vectors) * extents.groups
    weight_bytes = extents.products * extents.groups * vectors * extents.lanes * depth * 4
    panel_bytes = tile.vectors * extents.lanes * depth * 4
    sets = RowSets.of(extents.row_pitch, machine)
    compute = total_cycles(tile, extents.height, extents.width, extents.multiplied_vectors, depth, sets=sets)
    compute /= _speed(extents)
    compute *= extents.products * extents.groups
    begun, again = (read(extents, panel_bytes // depth, machine) for read in (first_pass, other_passes))
    split = split_cycles(extents, machine)
    panel_counts = [1] if extents.whole_rows else chunk_counts(panels, threads)
    shares = [(count, Split(panels, count).longest) for count in panel_counts]
    for row_chunks in chunk_counts(rows, threads):
        longest_rows = Split(rows, row_chunks).longest
        # beyond half of L2 the chunk's rows are read again for every panel
        spill = max(1.0, extents.input_bytes / row_chunks / (machine.l2_bytes / 2))
        made = extents.row_cycles * extents.height * longest_rows / rows
        passes = (rows - row_chunks) * weight_bytes / again
        whole = max(compute, passes) + (rows - row_chunks) * split
        for panel_chunks, longest in shares:
            share = longest_rows / rows * longest / panels
            tasks = outer * row_chunks * panel_chunks
            rows_bytes = extents.input_bytes * _reads(panel_chunks) * spill
            traffic = weight_bytes * row_chunks / begun + rows_bytes / MEMORY_BYTES_PER_CYCLE
            busy = min(tasks, threads)
            cycles = (whole * share + made) * -(-tasks // threads)
            cycles += (outer * traffic + tasks * TASK_CYCLES) / busy
            cycles += REGION_CYCLES if tasks > 1 else 0
            block = min(max(1, machine.l2_bytes // 2 // panel_bytes), longest)
            yield Blocking(tile, row_chunks, panel_chunks, block, cycles)


def _speed(extents: Extents) -> float:
    """Return how many steps of k are done in the time of a float32 one."""
    return extents.per_cycle / FMA_PER_CYCLE


def chunk_counts(extent: int, threads: int) -> list[int]:
    """Return the numbers of chunks worth looking at: those that divide the threads, and multiples of the threads."""
    parts = (count for count in range(1, threads) if threads % count == 0)
    return sorted({min(extent, count) for count in (*parts, *(threads * 2**power for power in range(6)))})
