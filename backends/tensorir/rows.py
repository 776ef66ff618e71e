"""Stages that compute each row of a matrix from the same row of others: the part of them that some rows need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tvm import tirx
from tvm.ir import Range, TensorLoad, Var
from tvm.sym import Analyzer
from tvm_ffi.structural import structural_equal

from backends.tensorir.accesses import flat_index, unravel
from backends.tensorir.emit import Expr, int64
from backends.tensorir.stages import Axis, Stage, dtype_of, shape_of, substitute
from fusion.declined import Declined
from fusion.structural import map_nodes


@dataclass(frozen=True)
class RowBlock:
    """Rows of a matrix that has `total` of them.

    Attributes:
        first: The first row, a variable.
        rows: How many.
    """

    first: Var
    rows: int
    total: int

    def restrict(self, stages: Sequence[Stage]) -> tuple[list[Stage], dict[Var, Var]]:
        """Return `stages` over these rows alone, and the buffers [rows, ...] that they write in place of their own.

        `sum[b, m] += exp[b, m, k]`  ->  `local_sum[i] += local_exp[i, k]`

        Raises:
            Declined: The leading axes of what a stage makes are not the rows, or it reads another row than the one
                it computes.
        """
        local = {stage.buffer: self._part_of(stage.buffer) for stage in stages}
        return [self._stage(stage, local) for stage in stages], local

    def _part_of(self, buffer: Var) -> Var:
        rest = shape_of(buffer)[row_axes(buffer, self.total) :]
        return tirx.decl_buffer((self.rows, *rest), dtype_of(buffer), buffer.name)

    def _stage(self, stage: Stage, local: Mapping[Var, Var]) -> Stage:
        count = row_axes(stage.buffer, self.total)
        own, rest = stage.spatial[:count], stage.spatial[count:]
        row = Axis(Var("row", "int64"), self.rows)
        here = self.first + row.var
        analyzer = Analyzer()
        analyzer.bind(self.first, Range(int64(0), int64(self.total - self.rows + 1)))
        analyzer.bind(row.var, Range(int64(0), int64(self.rows)))
        computed = analyzer.simplify(here)
        places = dict(zip((axis.var for axis in own), unravel(here, [axis.extent for axis in own]), strict=True))

        def move(load: TensorLoad) -> Expr:
            if load.source not in local:
                return load
            lead = row_axes(load.source, self.total)
            at = [substitute(index, places) for index in load.indices[:lead]]
            if lead and not structural_equal(flat_index(shape_of(load.source)[:lead], at, analyzer), computed):
                raise Declined(f"{stage.buffer.name} reads another row")
            return tirx.BufferLoad(local[load.source], [row.var, *load.indices[lead:]])

        value = substitute(map_nodes(stage.value, (TensorLoad, move)), places)
        return replace(stage, buffer=local[stage.buffer], spatial=(row, *rest), value=value)


def row_axes(buffer: Var, total: int) -> int:
    """Return how many leading axes of `buffer` make up its `total` rows.

    Raises:
        Declined: None do.
    """
    shape = shape_of(buffer)
    for count in range(len(shape) + 1):
        if prod(shape[:count]) == total:
            return count
    raise Declined(f"{buffer.name} has other rows")
