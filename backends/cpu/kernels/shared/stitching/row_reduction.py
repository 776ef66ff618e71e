"""Writes a reduction along the vector axis: a row by several vector accumulators, then across the lanes.

```
acc[0:4*lanes] = identity                           # 4, unless the tiling says otherwise
for outer reduced axes:
    for k in range(K // (4 * lanes)):
        for u in T.unroll(4): for v in T.vectorized(lanes): acc[...] = combine(acc[...], value)
    the last K % lanes elements: one vector that ends at K, lanes already counted masked by the identity
store fold(acc)
```
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.kernels.shared.stitching.column_reduction import reduce_scalar
from backends.cpu.kernels.shared.stitching.tiled_stage import At, LoopAxis, TiledStage, sum_of
from backends.tensorir.emit import Expr, int64, ramp
from backends.tensorir.flat_buffers import load_flat, store_flat
from backends.tensorir.stages import dtype_of
from backends.tensorir.vectors import fitting_lanes, fold_lanes, side_by_side


def reduce_row(tiled: TiledStage, at: At, lanes: int, most: int) -> None:
    """Add the result of a row by at most `most` accumulators of `lanes`."""
    along = tiled.loops.along(tiled.loops.reduce)
    assert along is not None
    if tiled.splits_lanes(along, at):
        reduce_scalar(tiled, at)
        return
    if not isinstance(along.extent, int) and not tiled.lanes_may_idle(along, at):
        reduce_scalar(tiled, at)
        return
    if isinstance(along.extent, int):
        lanes = fitting_lanes(along.extent, lanes)
        most = min(most, along.extent // lanes)
    row = _Row(tiled, along, lanes, most, tiled.accumulators(most * lanes))
    row.clear()
    with tiled.over(tiled.loops.others(tiled.loops.reduce), {}) as reduced:
        row.update(at | reduced)
    row.fold(at)


@dataclass(frozen=True)
class _Row:
    """A row that is reduced.

    Attributes:
        along: Its axis.
        lanes, width: Elements of an accumulator, and how many there are.
        accumulators: All of them.
    """

    tiled: TiledStage
    along: LoopAxis
    lanes: int
    width: int
    accumulators: Var

    def clear(self) -> None:
        """Set the accumulators to the identity."""
        nest, identity = self.tiled.nest, self.tiled.stage.identity
        with side_by_side(nest, self.width, self.lanes) as (u, v):
            nest.add(store_flat(self.accumulators, u * self.lanes + v, identity))

    def update(self, at: At) -> None:
        """Add the loops over the row where other axes have the values `at`."""
        lanes, extent, step = self.lanes, self.along.extent, self.lanes * self.width
        if not isinstance(extent, int):
            self._update_open(at, extent, step)
            return
        main, rest, tail = extent // step, extent % step // lanes, extent % lanes
        nest = self.tiled.nest
        with nest.run("i", main) as k, nest.run("u", self.width, ForKind.UNROLLED) as u:
            self._vector(at, k * step + u * lanes, u * lanes)
        for vector in range(rest):
            self._vector(at, int64(main * step + vector * lanes), int64(vector * lanes))
        if tail:
            self._vector(at, int64(extent - lanes), int64((self.width - 1) * lanes), lanes - tail)

    def _update_open(self, at: At, extent: Expr, step: int) -> None:
        """Add the loops over as many elements as a call says: those behind the last whole step are masked vectors."""
        nest, lanes, main, rest = self.tiled.nest, self.lanes, extent // step, extent % step
        with nest.run("i", main) as k, nest.run("u", self.width, ForKind.UNROLLED) as u:
            self._vector(at, k * step + u * lanes, u * lanes)
        with nest.run("i", (rest + (lanes - 1)) // lanes) as k, nest.masked(rest - k * lanes):
            self._vector(at, main * step + k * lanes, int64(0), active=rest - k * lanes)

    def _vector(self, at: At, position: Expr, target: Expr, skip: int = 0, active: Expr = None) -> None:
        """Update the accumulator at `target` by elements from `position`: without the first `skip`, or by the first
        `active` alone."""
        tiled = self.tiled
        with tiled.nest.run("v", self.lanes, ForKind.VECTORIZED) as v:
            here = tiled.scope.enter(self.along, sum_of(self.along.begin, position) + v)
            names, value = tiled.resolve(at | here)
            if skip:
                value = tirx.Select(v >= int64(skip), value, tiled.stage.identity)
            if active is not None:
                value = tirx.Select(v < active, value, tiled.stage.identity)
            tiled.scope.name(names)
            combined = tiled.stage.combined(load_flat(self.accumulators, target + v), value)
            tiled.nest.add(store_flat(self.accumulators, target + v, combined))

    def fold(self, at: At) -> None:
        """Store what the accumulators are together."""
        places = [ramp(int64(vector * self.lanes), self.lanes) for vector in range(self.width)]
        vectors, stage = [load_flat(self.accumulators, place) for place in places], self.tiled.stage
        whole = fold_lanes(self.tiled.nest, vectors, self.lanes, dtype_of(stage.buffer), stage.combined)
        self.tiled.store(at, [], whole)
