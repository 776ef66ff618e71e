"""Writes the loops of one stage inside a tile."""

from __future__ import annotations

from backends.cpu.kernels.shared.stitching.column_reduction import reduce_columns
from backends.cpu.kernels.shared.stitching.map_writer import MapWriter
from backends.cpu.kernels.shared.stitching.plan import Tiling, is_unrolled
from backends.cpu.kernels.shared.stitching.row_reduction import reduce_row
from backends.cpu.kernels.shared.stitching.tiled_stage import TiledStage


def write_stage(tiled: TiledStage, vector_bytes: int, tiling: Tiling, *, in_place: bool) -> None:
    """Add the loops of a stage.

    Args:
        vector_bytes: Size of a vector register.
        tiling: How many vectors are computed side by side.
        in_place: Whether it reads what it writes over.
    """
    stage, loops = tiled.stage, tiled.loops
    lanes = max(1, vector_bytes // tiled.accesses.element_bytes)  # of the widest type that the stage touches
    if stage.combine is None:
        MapWriter(tiled, lanes, tiling.unrolled if is_unrolled(stage) else 1, in_place).write()
    elif loops.along(loops.reduce) is not None:
        with tiled.over(loops.spatial, dict(loops.at)) as at:
            reduce_row(tiled, at, lanes, tiling.row_vectors)
    else:
        with tiled.over(loops.others(loops.spatial), dict(loops.at)) as at:
            reduce_columns(tiled, at, lanes, tiling.column_vectors)
