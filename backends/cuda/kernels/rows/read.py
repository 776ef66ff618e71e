"""Reads a kernel whose rows are computed one by one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tvm import tirx
from tvm.ir import Var

from backends.cuda.kernels.affine import analyzer_below
from backends.cuda.kernels.device_arithmetic import NARROW, in_float32
from backends.cuda.kernels.stored_apart import stored_apart
from backends.tensorir.accesses import flat_index, unravel
from backends.tensorir.emit import Expr
from backends.tensorir.inlining import Resolver, inline_stages, uses
from backends.tensorir.rows import RowBlock
from backends.tensorir.stages import Axis, Stage, dtype_of, loads, output_buffers, read_stages, shape_of
from fusion.declined import Declined

_DTYPES = NARROW | {"float32"}
_INDICES = ("int32", "int64")
_LEAST = 8
"""Elements of a row that is a window of a longer one: shorter ones are for threads alone."""


@dataclass(frozen=True)
class RowRegion:
    """Stages over one row of a matrix.

    Attributes:
        row: Which row, a variable.
        rows: How many there are.
        width: Elements of a row.
        stages: What a thread keeps in registers, in order.
        inlined: The other stages, by what they make.
        outputs: The kernel's own buffers, by those of the row that are stored to them: rows, or one number of each.
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
            length; a stage reads other rows or writes a slice; nothing is read along the rows; numbers are no float32,
            float16 or bfloat16.
    """
    stages = read_stages(func)
    return region_of_rows(stages, output_buffers(func, stages))


def region_of_rows(stages: Sequence[Stage], outputs: Collection[Var]) -> RowRegion:
    """Return these stages over one row, of which `outputs` are stored.

    Raises:
        Declined: See `read_rows`.
    """
    stages = stored_apart(stages, outputs)
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
    inlined = inline_stages(local, set(stored))
    kept = tuple(stage for stage in local if stage.buffer not in inlined)
    region = RowRegion(row, rows, width, stages=kept, inlined=inlined, outputs=stored)
    if not any(_reads_along_row(region, stage) for stage in kept if stage.combine is not None):
        raise Declined("neighbours of a row do not lie next to each other")
    return region


def _reads_along_row(region: RowRegion, stage: Stage) -> bool:
    """Return whether a reduction reads its row from memory, or from a stage that made it, element after element, and
    nothing across rows, as weights are whose neighbours are of the next result: there threads have results side by
    side."""
    column, found, across = Var("column", "int64"), list[bool](), list[bool]()
    axes = region.axes_of(stage)
    place = dict(zip((axis.var for axis in axes), unravel(column, [axis.extent for axis in axes]), strict=True))
    place |= {axis.var: tirx.const(0, "int64") for axis in stage.spatial}
    analyzer = analyzer_below([(region.row, region.rows), (column, region.width)])
    made = {stage.buffer for stage in region.stages}

    def load(buffer: Var, indices: Sequence[Expr]) -> Expr:
        start = tirx.const(0, "int64") if buffer in made else region.row * region.width
        at = analyzer.simplify(flat_index(shape_of(buffer), indices, analyzer))
        rest = analyzer.simplify(at - column)
        across.append(buffer not in made and uses(at, column) and uses(rest, column))
        is_long = region.width >= _LEAST and not uses(rest, column)
        found.append(is_long or analyzer.can_prove_equal(rest, start))
        return tirx.BufferLoad(buffer, list(indices))

    Resolver(region.inlined, load, analyzer).resolve(stage.value, place)
    return any(found) and not any(across)


def indices_of(stages: Iterable[Stage]) -> set[Var]:
    """Return the buffers whose integers say where others are read, as rows of a table."""
    read = [load for stage in stages for load in loads(stage.value)]
    inner = {each.source for load in read for index in load.indices for each in loads(index)}
    return {buffer for buffer in inner if dtype_of(buffer) in _INDICES}


def _check_numbers(stages: list[Stage]) -> None:
    read = {load.source for stage in stages for load in loads(stage.value)} - indices_of(stages)
    others = {dtype_of(buffer) for buffer in read | {stage.buffer for stage in stages}} - _DTYPES
    if others:
        raise Declined(f"it computes in {', '.join(sorted(others))}")


def _begins_at_zero(stage: Stage) -> bool:
    return isinstance(stage.identity, tirx.FloatImm) and stage.identity.value == 0


def _size(stage: Stage) -> int:
    """Return of how many elements a stage's row is made, or what it reduces."""
    made = prod(int(axis.extent) for axis in stage.spatial[1:])
    return made * prod(int(axis.extent) for axis in stage.reduce)
