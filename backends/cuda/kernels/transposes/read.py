"""Reads an elementwise kernel of which an operand lies in another order than the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm.sym import Analyzer

from backends.cuda.kernels.pointwise.read import ElementwiseRegion, read_pointwise
from backends.tensorir.accesses import flat_index, range_of, unravel
from backends.tensorir.emit import int64
from backends.tensorir.inlining import Resolver, guards
from backends.tensorir.stages import dtype_of, shape_of, substitute
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
        columns: Those of the last axes, along which neighbours of the outputs do; `outer` are the others.
        turned: Where in each buffer that is read turned an element is, over the axes.
    """

    region: ElementwiseRegion
    outer: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    turned: Mapping[Var, Expr]

    def extents(self, places: Sequence[int]) -> list[int]:
        """Return the extents of axes."""
        return [int(self.region.axes[place].extent) for place in places]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many places `outer`, `rows` and `columns` have, all axes of each together."""
        outer, rows, columns = (prod(self.extents(places)) for places in (self.outer, self.rows, self.columns))
        return outer, rows, columns

    def axes_at(self, outer: Expr, row: Expr, column: Expr) -> dict[Var, Expr]:
        """Return what each axis is at one of these places."""
        known = {axis.var: int64(0) for axis in self.region.axes}
        for at, places in zip((outer, row, column), (self.outer, self.rows, self.columns), strict=True):
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
    for buffer, (position,) in turned.items():
        own = _rows(region, position, long)
        if own and rows in ((), own):
            rows = own
            found[buffer] = position
    if not found:
        raise Declined("nothing is read transposed")
    begin = max(long.index(place) for place in rows) + 1
    outer = tuple(place for place in long[:begin] if place not in rows)
    parts = TransposedRegion(region, outer, rows, tuple(long[begin:]), found)
    if max(parts.sizes[1:]) < SHORT:
        raise Declined(f"rows and columns are fewer than {SHORT}")
    return parts


def _positions(region: ElementwiseRegion) -> dict[Var, list[Expr]]:
    """Return where in each buffer the outputs read, over their axes."""
    analyzer = Analyzer()
    for axis in region.axes:
        analyzer.bind(axis.var, range_of(axis))
    found: dict[Var, list[Expr]] = {}

    def load(buffer: Var, indices: Sequence[Expr]) -> Expr:
        position, known = flat_index(shape_of(buffer), indices, analyzer), found.setdefault(buffer, [])
        if not any(analyzer.can_prove_equal(position, each) for each in known):
            known.append(position)
        return tirx.BufferLoad(buffer, list(indices))

    for stage in region.outputs:
        Resolver(region.stages, load, analyzer).resolve(stage.value, {})
    return found


def _rows(region: ElementwiseRegion, position: Expr, long: Sequence[int]) -> tuple[int, ...]:
    """Return the axes along which a position grows by one, if these are not the last ones; () otherwise."""
    analyzer = Analyzer()
    axes = {place: region.axes[place] for place in long}
    for axis in region.axes:
        analyzer.bind(axis.var, range_of(axis))
    steps = {}
    rest = position
    for place, axis in axes.items():
        step = analyzer.simplify(substitute(position, {axis.var: axis.var + 1}) - position)
        if not isinstance(step, tirx.IntImm):
            return ()
        steps[place] = int(step.value)
        rest = rest - axis.var * step
    unit = [place for place in long if steps[place] == 1]
    if len(unit) != 1 or steps[long[-1]] <= 1 or not isinstance(analyzer.simplify(rest), tirx.IntImm):
        return ()
    rows = unit
    for place in reversed(long[: long.index(unit[0])]):
        if steps[place] != prod(int(axes[each].extent) for each in rows):
            break
        rows = [place, *rows]
    return tuple(rows)
