"""What the time of a contraction may depend on, beside the estimate: numbers that a cost model learns from."""

from __future__ import annotations

from collections.abc import Mapping
from math import log2, prod

from backends.cpu.kernels.shared.contraction import Blocking
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.register_tile import RowSets, total_cycles
from backends.cpu.kernels.shared.split import Split
from backends.cpu.machine import Machine


def blocking_features(extents: Extents, machine: Machine, threads: int, point: Blocking) -> Mapping[str, float]:
    """Return numbers of a blocking: sizes as logarithms, footprints as those of their share of a cache."""
    tile, vectors, steps = point.tile, extents.vectors, extents.steps
    rows, columns = Split.of(extents.height, tile.height), Split.of(extents.width, tile.width)
    panels = -(-vectors // tile.vectors) * extents.groups
    row_share = Split(rows.count, point.row_chunks).longest / rows.count
    panel_share = Split(panels, point.panel_chunks).longest / panels
    tasks = extents.outer * point.row_chunks * point.panel_chunks
    share = -(-tasks // threads) * row_share * panel_share
    panel_bytes = 4 * tile.vectors * extents.lanes * steps
    weight_bytes = 4 * extents.products * extents.groups * vectors * extents.lanes * steps
    full = vectors % tile.vectors or tile.vectors
    whole = extents.height * extents.width * vectors * steps / 2
    sets = RowSets.of(extents.row_pitch, machine)
    return {
        "height": log2(extents.height), "width": log2(extents.width), "vectors": log2(vectors), "steps": log2(steps),
        "taps": log2(max(prod(extents.taps), 1)), "outer": log2(extents.outer * extents.groups),
        "cut vector": extents.channels % extents.lanes / extents.lanes,
        "tile rows": tile.rows, "sums": tile.rows * tile.vectors, "registers": tile.registers(),
        "loads a product": (tile.rows + tile.vectors) / (tile.rows * tile.vectors),
        "last row": rows.short / rows.longest, "last column": columns.short / columns.longest,
        "last panel": full / tile.vectors,
        "sizes": (1 + (rows.short < rows.longest)) * (1 + (columns.short < columns.longest)),
        "efficiency": whole / total_cycles(tile, extents.height, extents.width, vectors, steps, sets=sets),
        "tasks": log2(tasks), "rounds": -(-tasks // threads), "imbalance": share * threads / extents.outer,
        "panels": log2(panels), "panels a task": log2(max(panels * panel_share, 1)),
        "tiles a task": log2(max(rows.count * row_share * columns.count, 1)),
        "panel of L1": log2(panel_bytes / machine.l1_bytes), "panel of L2": log2(panel_bytes / machine.l2_bytes),
        "block of L2": log2(point.panel_block * panel_bytes / machine.l2_bytes),
        "blocks": -(-panels * panel_share // point.panel_block),
        "rows of L1": log2(4 * tile.rows * steps / machine.l1_bytes),
        "chunk of L2": log2(extents.input_bytes * row_share / machine.l2_bytes),
        "input of L2": log2(extents.input_bytes / machine.l2_bytes),
        "weights of L2": log2(weight_bytes / machine.l2_bytes),
        "result of L2": log2(4 * extents.height * extents.width * extents.channels / machine.l2_bytes),
        "shared sets": float(4 * extents.depth % machine.l1_span == 0),
        "shared sets of results": float(4 * extents.channels % machine.l1_span == 0),
        "row cycles": log2(1 + extents.row_cycles), "products": extents.products, "terms": float(point.in_tiles),
    }  # fmt: skip
