"""Reads a kernel whose rows are computed one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tvm import tirx
from tvm.ir import Var

from backends.cuda.kernels.device_arithmetic import NARROW, in_float32
from backends.tensorir.inlining import inline_stages
from backends.tensorir.rows import RowBlock
from backends.tensorir.stages import Axis, Stage, dtype_of, loads, output_buffers, read_stages, shape_of
from fusion.declined import Declined

_DTYPES = NARROW | {"float32"}


@dataclass(frozen=True)
class RowRegion:
    """Stages over one row of a matrix.

    Attributes:
        row: Which row, a variable.
        rows: How many there are.
        width: Elements of a row.
        stages: What a thread keeps in registers, in order.
        inlined: The other stages, by what they make.
        outputs: The kernel's own buffers, by those of the row that are stored to them.
    """

    row: Var
    rows: int
    width: int
    stages: tuple[Stage, ...]
    inlined: Mapping[Var, Stage]
    outputs: Mapping[Var, Var]

    def axes_of(self, stage: Stage) -> tuple[Axis, ...]:
        """Return the axes that run over the row; () of a stage that makes one number of what others made."""
        axes = stage.reduce if stage.combine is not None else stage.spatial[1:]
        return axes if prod(int(axis.extent) for axis in axes) == self.width else ()


def read_rows(func: tirx.PrimFunc) -> RowRegion:
    """Return the stages of `func` over one row.

    Raises:
        Declined: Nothing is reduced, or by something else than sums, maxima and minima; rows differ in their number or
            length; a stage reads other rows or writes a slice; an output is no matrix of the rows; numbers are no
            float32, float16 or bfloat16.
    """
    stages = read_stages(func)
    outputs = output_buffers(func, stages)
    _check_numbers(stages)
    reductions = [stage for stage in stages if stage.combine is not None]
    if not reductions:
        raise Declined("no stage is a reduction")
    if any(stage.combine not in (tirx.Add, tirx.Max, tirx.Min) for stage in reductions):
        raise Declined("it reduces by something else than + max min")
    if any(stage.combine is tirx.Add and not _begins_at_zero(stage) for stage in reductions):
        raise Declined("a sum begins with a number that each lane would add")
    if any(stage.offsets for stage in stages):
        raise Declined("a stage writes a slice")
    rows = prod(shape_of(reductions[0].buffer))
    width = prod(int(axis.extent) for axis in reductions[0].reduce)
    if rows * width == 0:
        raise Declined("the rows are empty")
    row = Var("row", "int64")
    local, own = RowBlock(row, 1, rows).restrict(in_float32(stages, outputs))
    if any(_size(stage) not in ((width,) if stage.combine is not None else (1, width)) for stage in local):
        raise Declined("the rows have several lengths")
    stored = {own[buffer]: buffer for buffer in outputs}
    if any(stage.buffer in stored and (stage.combine is not None or _size(stage) != width) for stage in local):
        raise Declined("an output has one number a row")
    inlined = inline_stages(local, set(stored))
    kept = tuple(stage for stage in local if stage.buffer not in inlined)
    return RowRegion(row, rows, width, stages=kept, inlined=inlined, outputs=stored)


def _check_numbers(stages: list[Stage]) -> None:
    read = {load.source for stage in stages for load in loads(stage.value)}
    others = {dtype_of(buffer) for buffer in read | {stage.buffer for stage in stages}} - _DTYPES
    if others:
        raise Declined(f"it computes in {', '.join(sorted(others))}")


def _begins_at_zero(stage: Stage) -> bool:
    return isinstance(stage.identity, tirx.FloatImm) and stage.identity.value == 0


def _size(stage: Stage) -> int:
    """Return of how many elements a stage's row is made, or what it reduces."""
    made = prod(int(axis.extent) for axis in stage.spatial[1:])
    return made * prod(int(axis.extent) for axis in stage.reduce)
