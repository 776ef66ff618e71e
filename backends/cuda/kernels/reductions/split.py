"""Long reductions of few results in two steps, so that they have threads enough to fill a device."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, isqrt, prod

from tvm import tirx
from tvm.ir import Var

from backends.cuda.devices import CudaDevice
from backends.cuda.kernels.affine import analyzer_over, step_of
from backends.cuda.kernels.pointwise.emit import THREADS
from backends.tensorir.accesses import flat_index, unravel
from backends.tensorir.emit import Expr, int64
from backends.tensorir.inlining import uses
from backends.tensorir.stages import Axis, Stage, dtype_of, loads, shape_of, substitute

_NEIGHBOURS = 4
"""Results that a thread has."""
_LONG = 1024
"""Elements that a thread reduces alone: more are worth a launch more, which is taken to cost 2 us."""
_LONGEST_ROW = 1 << 15
"""Elements of a part that is the work of a block, at most; an eighth of them keeps its 1,024 threads busy."""
_SHORTEST_ROW = 256
_ALIGNED = 16
"""Elements of which parts are multiples that are not even: sectors of float16."""


@dataclass(frozen=True)
class SplitReduction:
    """`result[i] = sum over p of partial[i, p]`, `partial[i, p] = sum over q of value(i, element q of part p)`.

    Attributes:
        parts: The stage that makes the partial results.
        total: The one that combines them, in the order of the parts.
    """

    parts: Stage
    total: Stage


def split(stage: Stage, device: CudaDevice, *, in_rows: bool) -> SplitReduction | None:
    """Return a reduction in two steps; None where one has threads enough, or too little to reduce.

    Args:
        stage: Reads memory alone.
        in_rows: Whether neighbours of what is reduced lie next to each other: then each part is a piece of the row, the
            work of a block. Otherwise threads reduce alone, each for neighbouring results, and parts take turns, so
            that what neighbouring parts read adjoins.
    """
    results, length = prod(shape_of(stage.buffer)), prod(int(axis.extent) for axis in stage.reduce)
    if in_rows:
        wanted = max(-(-length // _LONGEST_ROW), min(-(-2 * device.sms // results), length // (_LONGEST_ROW // 8)))
        most, unit = min(8 * wanted, length // _SHORTEST_ROW), 1
    else:
        adjoining = prod(shape_of(stage.buffer)[_place_of_part(stage) :])
        fitting = 2 * device.sms * THREADS * _NEIGHBOURS // results
        wanted = min(fitting, isqrt(length)) if length >= _LONG else 1
        most, unit = 2 * wanted, _ALIGNED // gcd(adjoining, _ALIGNED)
    if wanted < 2:
        return None
    wanted = -(-wanted // unit) * unit
    even = next((parts for parts in range(wanted, most + 1, unit) if length % parts == 0), None)
    if even or not in_rows:
        many = even or wanted
        return _in_parts(stage, many, -(-length // many), in_rows=in_rows)
    own = -(-length // wanted // _ALIGNED) * _ALIGNED
    return _in_parts(stage, -(-(length + _ALIGNED - 1) // own), own, in_rows=True)


def _in_parts(stage: Stage, many: int, length: int, *, in_rows: bool) -> SplitReduction:
    """Return a reduction of so many parts, of so many elements each but for what lies behind the last one. Pieces of
    rows that have something behind the last one begin where sectors do, before the row or in it."""
    extents = [int(axis.extent) for axis in stage.reduce]
    part, own = (Axis(Var(name, "int64"), extent) for name, extent in (("part", many), ("own", length)))
    others = tuple(Axis(Var(str(axis.var.name), "int64"), axis.extent) for axis in stage.spatial)
    reduced = part.var * length + own.var if in_rows else own.var * many + part.var
    known = {axis.var: other.var for axis, other in zip(stage.spatial, others, strict=True)}
    is_even, is_there = many * length == prod(extents), reduced < prod(extents)
    if in_rows and not is_even:
        reduced = reduced - substitute(_behind_sector(stage), known)
        is_there = tirx.And(reduced >= 0, reduced < prod(extents))
    place = known | dict(zip((axis.var for axis in stage.reduce), unravel(reduced, extents), strict=True))
    value = substitute(stage.value, place)
    if not is_even:
        value = tirx.if_then_else(is_there, value, stage.identity)
    at = len(others) if in_rows else _place_of_part(stage)
    spatial = (*others[:at], part, *others[at:])
    shape, dtype = tuple(int(axis.extent) for axis in spatial), dtype_of(stage.buffer)
    partial = tirx.decl_buffer(shape, dtype, f"{stage.buffer.name}_parts")
    parts = Stage(partial, spatial, (own,), value, combine=stage.combine, identity=stage.identity)
    summed, own_axes = Axis(Var("part", "int64"), many), [axis.var for axis in stage.spatial]
    taken = tirx.BufferLoad(partial, [*own_axes[:at], summed.var, *own_axes[at:]])
    total = Stage(stage.buffer, stage.spatial, (summed,), taken, combine=stage.combine, identity=stage.identity)
    return SplitReduction(parts, total)


def _behind_sector(stage: Stage) -> Expr:
    """Return how many elements behind the beginning of a sector a row begins, of what is read along it."""
    analyzer, first = analyzer_over((*stage.spatial, *stage.reduce)), {axis.var: int64(0) for axis in stage.reduce}
    along = next(load for load in loads(stage.value) if any(uses(load, axis.var) for axis in stage.reduce))
    begin = flat_index(shape_of(along.source), list(along.indices), analyzer)
    return analyzer.simplify(tirx.floormod(substitute(begin, first), int64(_ALIGNED)))


def _place_of_part(stage: Stage) -> int:
    """Return before which axis of the results parts adjoin: what one element of the reduction has of these lies before
    what the next one has."""
    analyzer = analyzer_over((*stage.spatial, *stage.reduce))
    read = (flat_index(shape_of(load.source), list(load.indices), analyzer) for load in loads(stage.value))
    steps = (step_of(position, stage.reduce[-1], analyzer) for position in read)
    longest = max((step for step in steps if step is not None), default=0)
    extents = [int(axis.extent) for axis in stage.spatial]
    return next((place for place in range(len(extents) + 1) if prod(extents[place:]) == longest), 0)
