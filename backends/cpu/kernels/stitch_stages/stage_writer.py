"""Writes the loops of one stage inside a tile."""

from __future__ import annotations

from tvm import tirx

from backends.cpu.kernels.stitch_stages.column_reduction import reduce_columns
from backends.cpu.kernels.stitch_stages.map_writer import MapWriter
from backends.cpu.kernels.stitch_stages.plan import Tiling, is_unrolled
from backends.cpu.kernels.stitch_stages.row_reduction import reduce_row
from backends.cpu.kernels.stitch_stages.tiled_stage import TiledStage


def write_stage(tiled: TiledStage, vector_bytes: int, tiling: Tiling) -> tirx.Stmt:
    """Return the loops of a stage.

    Args:
        vector_bytes: Size of a vector register.
        tiling: How many vectors are computed side by side.
    """
    stage, loops = tiled.stage, tiled.loops
    lanes = max(1, vector_bytes // tiled.accesses.element_bytes)  # of the widest type that the stage touches
    if stage.combine is None:
        return MapWriter(tiled, lanes, tiling.unrolled if is_unrolled(stage) else 1).write()
    at = dict(loops.at)
    if loops.along(loops.reduce) is not None:
        return tiled.nest(loops.spatial, at, lambda here: reduce_row(tiled, here, lanes, tiling.row_vectors))
    others = loops.others(loops.spatial)
    return tiled.nest(others, at, lambda here: reduce_columns(tiled, here, lanes, tiling.column_vectors))
