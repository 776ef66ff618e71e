"""Writes a reduction over other axes than the vector: several vectors of results stay in registers meanwhile.

```
for block of 8 vectors:                             # unless the tiling says otherwise
    acc[0:8*lanes] = identity
    for r in reduce axes:
        for u in T.unroll(8): for v in T.vectorized(lanes): acc[...] = combine(acc[...], value)
    store acc
```
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm.ir import Call, Var
from tvm.tirx.analysis import undefined_vars
from tvm_ffi import StructuralKey

from backends.cpu.kernels.shared.stitching.tiled_stage import At, LoopAxis, Names, TiledStage, sum_of
from backends.tensorir.emit import Expr, int64
from backends.tensorir.extents import Extent
from backends.tensorir.flat_buffers import load_flat, store_flat
from backends.tensorir.inlining import is_branch, uses
from backends.tensorir.vectors import fitting_lanes, side_by_side


def reduce_columns(tiled: TiledStage, at: At, lanes: int, most: int) -> None:
    """Add the results of a row, at most `most` vectors of `lanes` at a time."""
    along = tiled.loops.along(tiled.loops.spatial)
    if along is None:
        reduce_scalar(tiled, at)
        return
    if tiled.splits_lanes(along, at):
        with tiled.over([along], dict(at)) as here:
            reduce_scalar(tiled, here)
        return
    if not isinstance(along.extent, int):
        _reduce_open_columns(tiled, at, along, lanes, min(most, _OPEN_COLUMNS))
        return
    lanes = fitting_lanes(along.extent, lanes)
    columns = _Columns(tiled, at, along, lanes, tiled.accumulators(most * lanes))
    done, vectors = 0, along.extent // lanes
    for width in (width for width in (8, 4, 2, 1) if width <= most):
        count = (vectors - done) // width
        if count:
            columns.blocks(done * lanes, width, count)
            done += count * width
    if along.extent % lanes:
        columns.block(sum_of(along.begin, int64(along.extent - lanes)), 1)


def _reduce_open_columns(tiled: TiledStage, at: At, along: LoopAxis, lanes: int, width: int) -> None:
    """Add as many results of a row as a call says: blocks of `width` vectors, then vectors of which some lanes are
    idle."""
    if not tiled.lanes_may_idle(along, at):
        with tiled.over([along], dict(at)) as here:
            reduce_scalar(tiled, here)
        return
    columns = _Columns(tiled, at, along, lanes, tiled.accumulators(width * lanes))
    step = width * lanes
    main, rest = along.extent // step, along.extent % step
    columns.blocks(0, width, main)
    with tiled.nest.run("block", (rest + (lanes - 1)) // lanes) as block, tiled.nest.masked(rest - block * lanes):
        tiled.scope.learn(block, width)
        columns.block(sum_of(along.begin, main * step + block * lanes), 1)


def reduce_scalar(tiled: TiledStage, at: At) -> None:
    """Add one result."""
    _Columns(tiled, at, None, 1, tiled.accumulators(1)).block(int64(0), 1)


# Vectors of results that stay in registers where a call says how many there are: a rest is up to as many blocks of one.
_OPEN_COLUMNS = 4


@dataclass(frozen=True)
class _Columns:
    """Vectors of results.

    Attributes:
        at: Values of the axes around them.
        along: The axis whose neighbours are lanes; None for one result.
        accumulators: Where they are meanwhile.
    """

    tiled: TiledStage
    at: At
    along: LoopAxis | None
    lanes: int
    accumulators: Var

    def blocks(self, start: int, width: int, count: Extent) -> None:
        """Add `count` blocks of `width` vectors, the first at `start`."""
        assert self.along is not None
        first = self.along.begin + int64(start)
        with self.tiled.nest.run("block", count) as block:
            self.tiled.scope.learn(block, count)
            self.block(first + block * (width * self.lanes), width)

    def block(self, begin: Expr, width: int) -> None:
        """Add `width` vectors from `begin`."""
        tiled = self.tiled
        with self._elements(begin, width) as (offset, _):
            tiled.nest.add(store_flat(self.accumulators, offset, tiled.stage.identity))
        with tiled.over(tiled.loops.reduce, {}) as reduced:
            self._update(begin, width, reduced)
        with self._elements(begin, width) as (offset, here):
            tiled.store(here, [], load_flat(self.accumulators, offset))

    @contextmanager
    def _elements(self, begin: Expr, width: int) -> Iterator[tuple[Expr, At]]:
        """Open the loops over a block; give an element's place among the accumulators, and the values of axes."""
        scope = self.tiled.scope
        with side_by_side(scope.nest, width, self.lanes) as (u, v):
            scope.learn(u, width)  # what holds in every lane is no branch of any
            scope.learn(v, self.lanes)
            offset = u * self.lanes + v
            yield offset, self.at | (scope.enter(self.along, begin + offset) if self.along else {})

    def _update(self, begin: Expr, width: int, reduced: At) -> None:
        nest = self.tiled.nest
        with nest.apart() as updates, self._elements(begin, width) as (offset, here):
            names, value = self.tiled.resolve(here | reduced)
            condition, others, inside = self._without_padding(names, value)
            if condition is None or any(uses(condition, var) for var in undefined_vars(offset)):
                condition, others, inside = None, names, value
            self.tiled.scope.name(others)
            combined = self.tiled.stage.combined(load_flat(self.accumulators, offset), inside)
            nest.add(store_flat(self.accumulators, offset, combined))
        if condition is None:
            nest.extend(updates)
        else:
            nest.add_when(condition, updates)

    def _without_padding(self, names: Names, value: Expr) -> tuple[Expr, Names, Expr]:
        """Return `if_then_else(c, x, identity)` as c and x: padding adds nothing, so one test skips all vectors."""
        named = bool(names) and isinstance(value, Var) and value.same_as(names[-1][0])
        whole, rest = (names[-1][1], names[:-1]) if named else (value, names)
        if rest or not isinstance(whole, Call) or not is_branch(whole):
            return None, names, value
        condition, inside, outside = whole.args
        if StructuralKey(outside) != StructuralKey(self.tiled.stage.identity):
            return None, names, value
        return condition, [], inside
