"""Reads an elementwise kernel of which an operand lies in another order than the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Var

from backends.cuda.kernels.affine import AffineIndex, analyzer_over
from backends.cuda.kernels.pointwise.read import ElementwiseRegion, read_pointwise
from backends.cuda.kernels.runs import GOOD_SHARE, SECTOR_BYTES
from backends.tensorir.accesses import flat_index, unravel
from backends.tensorir.emit import int64
from backends.tensorir.inlining import Resolver, guards
from backends.tensorir.stages import dtype_of, item_bytes_of, shape_of
from fusion.declined import Declined

Expr = Any
_DTYPES = ("float32", "float16", "bfloat16", "int32", "int64")
SHORT = 8
"""Extent of rows or columns below which 4 bytes each fill no sector, so that a tile has them whole."""


@dataclass(frozen=True)
class TransposedRegion:
    """An elementwise region, whose axes are cut in three.

    Attributes:
        rows: Places of the axes along which neighbours of what is turned lie next to each other.
        columns: Those of the axes along which neighbours of the outputs do; `outer` are the others.
        unit: Those of the last axes, whose elements are neighbours in both, such as the numbers of a head: what is
            turned is so many elements at a time.
        turned: Where in each buffer that is read turned an element is, over the axes.
    """

    region: ElementwiseRegion
    outer: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    unit: tuple[int, ...]
    turned: Mapping[Var, Expr]

    def extents(self, places: Sequence[int]) -> list[int]:
        """Return the extents of axes."""
        return [int(self.region.axes[place].extent) for place in places]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many places `outer`, `rows` and `columns` have, all axes of each together."""
        outer, rows, columns = (prod(self.extents(places)) for places in (self.outer, self.rows, self.columns))
        return outer, rows, columns

    @property
    def together(self) -> int:
        """Elements of a unit; 1 where there is none."""
        return prod(self.extents(self.unit))

    def axes_at(self, outer: Expr, row: Expr, column: Expr, own: Expr) -> dict[Var, Expr]:
        """Return what each axis is at one of these places, and one element of the unit."""
        known = {axis.var: int64(0) for axis in self.region.axes}
        parts = ((outer, self.outer), (row, self.rows), (column, self.columns), (own, self.unit))
        for at, places in parts:
            indices = unravel(at, self.extents(places)) if places else []
            known |= {self.region.axes[place].var: each for place, each in zip(places, indices, strict=True)}
        return known


def read_transpose(func: tirx.PrimFunc) -> TransposedRegion:
    """Return the parts of `func`.

    Raises:
        Declined: `read_pointwise` cannot read it, it reads in branches, nothing is turned, or its tiles would be small.
    """
    region = read_pointwise(func)
    if any(guards(stage.value) for stage in region.stages.values()):
        raise Declined("it reads in branches")
    long = [place for place, axis in enumerate(region.axes) if axis.extent != 1]
    positions = _positions(region)
    turned = {buffer: each for buffer, each in positions.items() if len(each) == 1 and dtype_of(buffer) in _DTYPES}
    found: dict[Var, Expr] = {}
    rows: tuple[int, ...] = ()
    unit: tuple[int, ...] = ()
    for buffer, (position,) in turned.items():
        own, together = _rows(region, position, long)
        if own and (rows, unit) in (((), ()), (own, together)) and _is_cut(region, together, buffer):
            rows, unit = own, together
            found[buffer] = position
    if not found:
        raise Declined("nothing is read transposed")
    begin = max(long.index(place) for place in rows) + 1
    outer = tuple(place for place in long[:begin] if place not in rows)
    columns = tuple(place for place in long[begin:] if place not in unit)
    parts = TransposedRegion(region, outer, rows, columns=columns, unit=unit, turned=found)
    if max(parts.sizes[1:]) * parts.together < SHORT:
        raise Declined(f"rows and columns are fewer than {SHORT}")
    return parts


def _positions(region: ElementwiseRegion) -> dict[Var, list[Expr]]:
    """Return where in each buffer the outputs read, over their axes."""
    analyzer = analyzer_over(region.axes)
    found: dict[Var, list[Expr]] = {}

    def load(buffer: Var, indices: Sequence[Expr]) -> Expr:
        position, known = flat_index(shape_of(buffer), indices, analyzer), found.setdefault(buffer, [])
        if not any(analyzer.can_prove_equal(position, each) for each in known):
            known.append(position)
        return tirx.BufferLoad(buffer, list(indices))

    for stage in region.outputs:
        Resolver(region.stages, load, analyzer).resolve(stage.value, {})
    return found


def _rows(
    region: ElementwiseRegion, position: Expr, long: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes along which a position grows by one unit, and those of the unit, the last axes that lie as in the
    outputs; () where the former are the last ones but for these."""
    axes = {place: region.axes[place] for place in long}
    found = AffineIndex.of(position, list(axes.values()), analyzer_over(region.axes))
    if found is None:
        return (), ()
    steps = dict(zip(long, found.steps, strict=True))
    unit, together = tuple[int, ...](), 1
    for place in reversed(long):
        if steps[place] != together:
            break
        unit, together = (place, *unit), together * int(axes[place].extent)
    others = long[: len(long) - len(unit)]
    first = [place for place in others if steps[place] == together]
    is_turned = len(first) == 1 and steps[others[-1]] > together
    if not is_turned:
        return (), ()
    rows = first
    for place in reversed(others[: others.index(first[0])]):
        if steps[place] != together * prod(int(axes[each].extent) for each in rows):
            break
        rows = [place, *rows]
    return tuple(rows), unit


def _is_cut(region: ElementwiseRegion, unit: Sequence[int], buffer: Var) -> bool:
    """Return whether units are single elements, or begin and end inside of sectors, so that too little of these would
    be used by those who move them one by one."""
    size = prod(int(region.axes[place].extent) for place in unit) * item_bytes_of(buffer)
    used = size / (size + SECTOR_BYTES - item_bytes_of(buffer)) if size % SECTOR_BYTES else 1.0
    return not unit or used < GOOD_SHARE
