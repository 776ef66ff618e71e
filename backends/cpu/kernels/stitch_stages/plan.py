"""How stages without an anchor are cut."""

from __future__ import annotations

from backends.cpu.kernels.shared.stitching.plan import Tiling, work_of
from backends.cpu.kernels.shared.stitching.stage_group import StageGroup
from backends.cpu.machine import Machine
from backends.tensorir.space import Space


def stitch_space(group: StageGroup, machine: Machine, threads: int) -> Space[Tiling]:
    """Return the cuts of a group."""
    return work_of(group, machine.vector_lanes).space(threads)
