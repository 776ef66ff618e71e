"""The loops of stages without an anchor: see `stitching`."""

from __future__ import annotations

from tvm import tirx

from backends.cpu.kernels.shared.stitching.loops import StitchedLoops
from backends.cpu.kernels.shared.stitching.plan import Tiling
from backends.cpu.kernels.shared.stitching.stage_group import StageGroup
from backends.cpu.kernels.stitch_stages.read import read_stage_group
from backends.cpu.machine import Machine
from backends.tensorir.result import Scheduled

STITCH_STAGES = "stitch_stages"


def emit_stages(func: tirx.PrimFunc, group: StageGroup, machine: Machine, point: Tiling) -> Scheduled:
    """Return the stitched loops."""
    if group.is_empty:
        return Scheduled(func.with_body(tirx.Evaluate(tirx.const(0, "int32"))), STITCH_STAGES, "empty")
    kernel = StitchedLoops.make(group, machine, point, {})
    return Scheduled(func.with_body(kernel.emit()), STITCH_STAGES, kernel.describe())


def emit_open_stages(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the stitched loops of stages some of whose extents only a call knows: at the call, each loop over tiles is
    one of as many threads as there are, or a serial one where the work is too small for them.

    Raises:
        Declined: `read_stage_group` cannot read it, or the loops need numbers.
    """
    return emit_stages(func, read_stage_group(func), machine, Tiling(threads))
