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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Call, Var
from tvm.tirx.analysis import undefined_vars
from tvm_ffi import StructuralKey

from backends.cpu.kernels.stitch_stages.tiled_stage import At, LoopAxis, Names, TiledStage, sum_of
from backends.tensorir.inlining import is_branch, uses
from backends.tensorir.nests import allocate, bound, index, load_flat, loop, sequence, store_flat, unrolled, vectorized
from backends.tensorir.stages import dtype_of
from backends.tensorir.vectors import fitting_lanes

Expr = Any


def reduce_columns(tiled: TiledStage, at: At, lanes: int, most: int) -> tirx.Stmt:
    """Return the results of a row, at most `most` vectors of `lanes` at a time."""
    along = tiled.loops.along(tiled.loops.spatial)
    if along is None:
        return reduce_scalar(tiled, at)
    if tiled.splits_lanes(along, at):
        return tiled.nest([along], dict(at), lambda here: reduce_scalar(tiled, here))
    lanes = fitting_lanes(along.extent, lanes)
    columns = _Columns(tiled, at, along, lanes, allocate(most * lanes, dtype_of(tiled.stage.buffer), "acc"))
    parts: list[tirx.Stmt] = [tirx.AllocBuffer(columns.accumulators)]
    done, vectors = 0, along.extent // lanes
    for width in (width for width in (8, 4, 2, 1) if width <= most):
        count = (vectors - done) // width
        if count:
            parts.append(columns.blocks(done * lanes, width, count))
            done += count * width
    if along.extent % lanes:
        parts.append(columns.block(sum_of(along.begin, index(along.extent - lanes)), 1))
    return sequence(*parts)


def reduce_scalar(tiled: TiledStage, at: At) -> tirx.Stmt:
    """Return one result."""
    accumulator = allocate(1, dtype_of(tiled.stage.buffer), "acc")
    return sequence(tirx.AllocBuffer(accumulator), _Columns(tiled, at, None, 1, accumulator).block(index(0), 1))


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

    def blocks(self, start: int, width: int, count: int) -> tirx.Stmt:
        """Return `count` blocks of `width` vectors, the first at `start`."""
        assert self.along is not None
        first = self.along.begin + index(start)

        def body(block: Var) -> tirx.Stmt:
            self.tiled.scope.learn(block, count)
            return self.block(first + block * (width * self.lanes), width)

        return loop(count, body, name="block")

    def block(self, begin: Expr, width: int) -> tirx.Stmt:
        """Return `width` vectors from `begin`."""
        identity = self.tiled.stage.identity
        return sequence(
            self._each(begin, width, lambda offset, here: store_flat(self.accumulators, offset, identity)),
            self.tiled.nest(self.tiled.loops.reduce, {}, lambda reduced: self._update(begin, width, reduced)),
            self._each(
                begin, width, lambda offset, here: self.tiled.store(here, [], load_flat(self.accumulators, offset))
            ),
        )

    def _each(self, begin: Expr, width: int, body: Callable[[Expr, At], tirx.Stmt]) -> tirx.Stmt:
        """Return `body` of each element of a block: of its place among the accumulators, and the values of axes."""
        scope = self.tiled.scope

        def lane(u: Var, v: Var) -> tirx.Stmt:
            scope.learn(u, width)  # what holds in every lane is no branch of any
            scope.learn(v, self.lanes)
            offset = u * self.lanes + v
            names, here = scope.enter(self.along, begin + offset) if self.along else ([], {})
            return bound(names, body(offset, self.at | here))

        return unrolled(width, lambda u: vectorized(self.lanes, lambda v: lane(u, v)))

    def _update(self, begin: Expr, width: int, reduced: At) -> tirx.Stmt:
        conditions: list[Expr] = []

        def one(offset: Expr, here: At) -> tirx.Stmt:
            names, value = self.tiled.resolve(here | reduced)
            condition, others, inside = self._without_padding(names, value)
            if condition is None or any(uses(condition, var) for var in undefined_vars(offset)):
                condition, others, inside = None, names, value
            conditions.append(condition)
            combined = self.tiled.stage.combined(load_flat(self.accumulators, offset), inside)
            return bound(others, store_flat(self.accumulators, offset, combined))

        updates = self._each(begin, width, one)
        return updates if conditions[0] is None else tirx.IfThenElse(conditions[0], updates, None)

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
