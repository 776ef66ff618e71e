"""How many chunks of rows and panels become parallel tasks: balance between cores against bytes read more than once."""

from __future__ import annotations

from itertools import product
from math import gcd

from backends.cpu.anchors.contraction import Blocking
from backends.cpu.anchors.register_tile import FMA_PER_CYCLE, choose
from backends.cpu.anchors.split import Split
from fusion.context import Machine

BYTES_PER_CYCLE = 8.0  # one core from L3 or memory, the slower of the two kinds of machines measured
TASK_CYCLES = 600  # hand a task to a worker and leave it


def choose_blocking(
    machine: Machine, threads: int, *, outer: int, groups: int, height: int, width: int, vectors: int, depth: int, input_bytes: int
) -> Blocking:
    """Return register tile and task grid of a contraction.

    Args:
        outer, groups, height, width, vectors, depth: As in `Contraction`; `depth` counts all taps.
        input_bytes: Bytes of one image of the input.
    """
    tile = choose(height, width, vectors, depth, machine.vector_registers)
    rows = Split.of(height, tile.height).count
    panels = -(-vectors // tile.vectors) * groups
    weight_bytes = groups * vectors * machine.vector_lanes * depth * 4
    compute = outer * groups * height * width * vectors * depth / FMA_PER_CYCLE

    def cycles(grid: tuple[int, int]) -> float:
        row_chunks, panel_chunks = grid
        tasks = outer * row_chunks * panel_chunks
        share = Split(rows, row_chunks).longest / rows * Split(panels, panel_chunks).longest / panels / outer
        spill = max(1.0, input_bytes / row_chunks / (machine.l2_bytes / 2))  # the chunk's rows are read again for every panel
        traffic = outer * (weight_bytes * row_chunks + input_bytes * panel_chunks * spill)
        return compute * share * -(-tasks // threads) + (traffic / BYTES_PER_CYCLE + tasks * TASK_CYCLES) / threads

    grids = product(_chunk_counts(rows, threads), _chunk_counts(panels, threads))
    row_chunks, panel_chunks = min(grids, key=cycles)
    panel_bytes = tile.vectors * machine.vector_lanes * depth * 4
    block = min(max(1, machine.l2_bytes // 2 // panel_bytes), Split(panels, panel_chunks).longest)
    return Blocking(tile, row_chunks, panel_chunks, block)


def _chunk_counts(extent: int, threads: int) -> list[int]:
    """Return the numbers of chunks worth looking at: one, and multiples of the threads."""
    return sorted({min(extent, count) for count in (1, *(threads * 2**power for power in range(6)))})


def rows_collide(machine: Machine, depth: int, rows: int) -> bool:
    """Return whether the rows of a tile, `depth` floats apart, fall into so few L1 sets that they evict one another."""
    way_bytes = machine.l1_bytes // _L1_WAYS
    sets = way_bytes // gcd(way_bytes, depth * 4)
    return rows > 4 and rows / max(1, sets) > _L1_WAYS / 2


_L1_WAYS = 12  # of 48 KiB: Intel since Ice Lake; older and AMD's 32 KiB in 8 ways have the same 4 KiB a way
