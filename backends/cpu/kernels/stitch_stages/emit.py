"""The loops of stages without an anchor: see `stitching`."""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx
from tvm.ir import TensorLoad

from backends.cpu.kernels.shared.stitching.loops import StitchedLoops
from backends.cpu.kernels.shared.stitching.plan import Tiling
from backends.cpu.kernels.shared.stitching.stage_group import StageGroup
from backends.cpu.kernels.stitch_stages.read import read_stage_group
from backends.cpu.machine import Machine
from backends.tensorir.result import Scheduled
from fusion.structural import contains, map_nodes

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
    made = emit_stages(func, read_stage_group(func), machine, Tiling(threads))
    divides = contains(func.body, (tuple(_TRUNCATED), lambda division: True))  # places are read one by one then
    func = map_nodes(made.func, (tuple(_TRUNCATED), _truncated))
    return replace(made, func=func, is_written_out=not divides)


_TRUNCATED = {tirx.FloorDiv: tirx.truncdiv, tirx.FloorMod: tirx.truncmod}


def _truncated(division: tirx.PrimExpr) -> tirx.PrimExpr:
    """Return a division of indices, none of which is negative, as the CPU has it: TVM tests the signs of both operands,
    and LLVM's code generator refuses some of its tests."""
    if isinstance(division.b, tirx.IntImm) or contains(division, (TensorLoad, lambda load: True)):
        return division
    return _TRUNCATED[type(division)](division.a, division.b)
