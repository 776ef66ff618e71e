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
from typing import Any

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.stitch_stages.column_reduction import reduce_scalar
from backends.cpu.kernels.stitch_stages.tiled_stage import At, LoopAxis, TiledStage, sum_of
from backends.tensorir.nests import allocate, bound, index, load_flat, loop, sequence, store_flat, unrolled, vectorized
from backends.tensorir.stages import dtype_of
from backends.tensorir.vectors import fitting_lanes, fold_lanes

Expr = Any


def reduce_row(tiled: TiledStage, at: At, lanes: int, most: int) -> tirx.Stmt:
    """Return the result of a row by at most `most` accumulators of `lanes`."""
    along = tiled.loops.along(tiled.loops.reduce)
    assert along is not None
    if tiled.splits_lanes(along, at):
        return reduce_scalar(tiled, at)
    lanes = fitting_lanes(along.extent, lanes)
    width = min(most, along.extent // lanes)
    row = _Row(tiled, along, lanes, width, allocate(width * lanes, dtype_of(tiled.stage.buffer), "acc"))
    clear = row.clear()
    outer = tiled.nest(tiled.loops.others(tiled.loops.reduce), {}, lambda reduced: row.update(at | reduced))
    return sequence(tirx.AllocBuffer(row.accumulators), clear, outer, row.fold(at))


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

    def clear(self) -> tirx.Stmt:
        """Return what sets the accumulators to the identity."""
        identity = self.tiled.stage.identity

        def one(u: Var) -> tirx.Stmt:
            return vectorized(self.lanes, lambda v: store_flat(self.accumulators, u * self.lanes + v, identity))

        return unrolled(self.width, one)

    def update(self, at: At) -> tirx.Stmt:
        """Return the loops over the row where other axes have the values `at`."""
        lanes, extent, step = self.lanes, self.along.extent, self.lanes * self.width
        main, rest, tail = extent // step, extent % step // lanes, extent % lanes

        def block(k: Var) -> tirx.Stmt:
            return unrolled(self.width, lambda u: self._vector(at, k * step + u * lanes, u * lanes))

        parts = [loop(main, block)]
        for u in range(rest):
            parts.append(self._vector(at, index(main * step + u * lanes), index(u * lanes)))
        if tail:
            parts.append(self._vector(at, index(extent - lanes), index((self.width - 1) * lanes), lanes - tail))
        return sequence(*parts)

    def _vector(self, at: At, position: Expr, target: Expr, skip: int = 0) -> tirx.Stmt:
        """Return the update of the accumulator at `target` by elements from `position`, without the first `skip`."""
        tiled = self.tiled

        def body(v: Var) -> tirx.Stmt:
            names, here = tiled.scope.enter(self.along, sum_of(self.along.begin, position) + v)
            bindings, value = tiled.resolve(at | here)
            if skip:
                value = tirx.Select(v >= index(skip), value, tiled.stage.identity)
            combined = tiled.stage.combined(load_flat(self.accumulators, target + v), value)
            return bound(names + bindings, store_flat(self.accumulators, target + v, combined))

        return vectorized(self.lanes, body)

    def fold(self, at: At) -> tirx.Stmt:
        """Return the store of what the accumulators are together."""
        lanes = self.lanes
        at_lanes = [tirx.Ramp(index(u * lanes), index(1), lanes) if lanes > 1 else index(u) for u in range(self.width)]
        vectors = [load_flat(self.accumulators, position) for position in at_lanes]
        stage = self.tiled.stage
        folds, scalar = fold_lanes(vectors, lanes, dtype_of(stage.buffer), stage.combined)
        return sequence(*folds, self.tiled.store(at, [], scalar))
