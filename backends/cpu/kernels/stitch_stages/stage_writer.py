"""Write the loops of one stage inside a tile."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import sym, tirx
from tvm.ir import Call, Range, Var
from tvm.tirx.analysis import undefined_vars
from tvm_ffi import StructuralKey

from backends.cpu.kernels.stitch_stages.plan import Tiling, is_unrolled
from backends.tensorir.accesses import Accesses
from backends.tensorir.collapsing import Run, axis_values, run_extent
from backends.tensorir.inlining import Place, Resolver, guards, is_branch, uses
from backends.tensorir.nests import (
    allocate,
    bound,
    index,
    load_flat,
    loop,
    sequence,
    store_flat,
    unrolled,
    vectorized,
)
from backends.tensorir.stages import Axis, Stage, dtype_of, substitute
from backends.tensorir.vectors import fitting_lanes, fold_lanes, map_vectors

Expr = Any
At = dict[Var, Expr]

_MAX_SEGMENTS = 64


@dataclass(frozen=True)
class LoopAxis:
    """The part of a run of axes that a tile covers: [begin, begin + extent)."""

    run: Run
    begin: Expr
    extent: int

    def has(self, axis: Axis) -> bool:
        """Return whether the axis is one of the run."""
        return axis in self.run

    def at(self, position: Expr) -> At:
        """Return the values of the axes at a position."""
        return axis_values(self.run, position)


@dataclass
class StageWriter:
    """Writes one stage.

    Attributes:
        stage: What to compute.
        accesses: The stage's store, then its loads.
        at: Value of each axis that the tile holds fixed.
        spatial, reduce: The loops to write, in order.
        vector: The axis whose neighbours become lanes; None for scalar code.
        inlined, place, analyzer: As in `Resolver`.
        vector_bytes: Size of a vector register.
        tiling: How many vectors are computed side by side.
    """

    stage: Stage
    accesses: Accesses
    at: At
    spatial: list[LoopAxis]
    reduce: list[LoopAxis]
    vector: Axis | None
    inlined: dict[Var, Stage]
    place: Place
    analyzer: sym.Analyzer
    vector_bytes: int
    tiling: Tiling

    def write(self) -> tirx.Stmt:
        """Return the loops."""
        if self.stage.combine is None:
            return self._nest(self._others(self.spatial), dict(self.at), self._map)
        if self.vector is not None and any(r.has(self.vector) for r in self.reduce):
            return self._nest(self.spatial, dict(self.at), self._reduce_row)
        return self._nest(self._others(self.spatial), dict(self.at), self._reduce_columns)

    @property
    def lanes(self) -> int:
        """Elements per vector of the widest type that the stage touches."""
        return max(1, self.vector_bytes // self.accesses.element_bytes)

    def _others(self, axes: list[LoopAxis]) -> list[LoopAxis]:
        return [axis for axis in axes if self.vector is None or not axis.has(self.vector)]

    def _vector_loop(self, axes: list[LoopAxis]) -> LoopAxis | None:
        return next((axis for axis in axes if self.vector is not None and axis.has(self.vector)), None)

    def _nest(self, axes: list[LoopAxis], at: At, innermost: Callable[[At], tirx.Stmt]) -> tirx.Stmt:
        """Return serial loops over `axes`, outermost first."""
        if not axes:
            return innermost(at)
        first = axes[0]

        def body(var: Var) -> tirx.Stmt:
            self._learn(var, first.extent)
            names, here = self._enter(first, _sum(first.begin, var))
            return bound(names, self._nest(axes[1:], at | here, innermost))

        return loop(first.extent, body, name=first.run[-1].var.name)

    def _learn(self, var: Var, extent: int) -> None:
        self.analyzer.bind(var, Range.from_min_extent(index(0), index(extent)))

    def _enter(self, along: LoopAxis, position: Expr) -> tuple[list[tuple[Var, Expr]], At]:
        """Return the axes' values at a position; a run's position gets a name first.

        TVM simplifies (p // 7) * 7 + p % 7 to p for a variable p, but not for p = v + 35.
        """
        if len(along.run) == 1:
            return [], along.at(position)
        name = Var("p", "int64")
        self._learn(name, run_extent(along.run))
        return [(name, position)], along.at(name)

    def _resolve(self, at: At) -> tuple[list[tuple[Var, Expr]], Expr]:
        resolver = Resolver(self.inlined, self.place, self.analyzer)
        value = resolver.resolve(self.stage.value, at)
        return resolver.bindings, value

    def _store(self, at: At, bindings: list[tuple[Var, Expr]], value: Expr) -> tirx.Stmt:
        target = self.place(self.stage.buffer, self.stage.stored_at([at[axis.var] for axis in self.stage.spatial]))
        return bound(bindings, store_flat(target.source, target.indices[-1] if target.indices else index(0), value))

    # --- no reduction ---------------------------------------------------------------------------------------------

    def _map(self, at: At) -> tirx.Stmt:
        along = self._vector_loop(self.spatial)
        if along is None:
            return self._store(at, *self._resolve(at))
        unroll = self.tiling.unrolled if is_unrolled(self.stage) else 1
        parts = []
        for begin, extent in self._segments(along, at):
            # lanes that branch differently would each be a scalar anyway, and TVM's vectoriser gets them wrong
            lanes = 1 if self._guarded and self._branches_on(along, at, begin, extent) else self.lanes
            first = _sum(along.begin, index(begin))
            if self._guarded:
                body = self._mapped_segment(along, at, first, extent)
                parts.append(map_vectors(index(0), extent, lanes, unroll, body, self._learn))
            else:
                parts.append(map_vectors(first, extent, lanes, unroll, self._mapped_lanes(along, at), self._learn))
        return sequence(*parts)

    def _mapped_lanes(self, along: LoopAxis, at: At) -> Callable[[Expr], tirx.Stmt]:
        def body(position: Expr) -> tirx.Stmt:
            names, here = self._enter(along, position)
            return bound(names, self._store(at | here, *self._resolve(at | here)))

        return body

    def _mapped_segment(self, along: LoopAxis, at: At, first: Expr, extent: int) -> Callable[[Expr], tirx.Stmt]:
        """Return what computes the element at a position of a segment, whose range decides the branches."""

        def body(position: Expr) -> tirx.Stmt:
            name = Var("p", "int64")
            self._learn(name, extent)
            here = along.at(_sum(first, name))
            return bound([(name, position)], self._store(at | here, *self._resolve(at | here)))

        return body

    def _branches_on(self, along: LoopAxis, at: At, begin: int, extent: int) -> bool:
        """Return whether a branch condition still depends on the vector axis within a segment."""
        probe = Var("probe", "int64")
        self._learn(probe, extent)
        bindings, value = self._resolve(at | along.at(along.begin + index(begin) + probe))
        return any(uses(guard, probe) for part in [value, *(b for _, b in bindings)] for guard in guards(part))

    def _segments(self, along: LoopAxis, at: At) -> list[tuple[int, int]]:
        """Cut the vector axis where a branch condition changes (concat, pad), so that no lane needs a branch."""
        if not self._guarded or not isinstance(along.begin, tirx.IntImm):
            return [(0, along.extent)]
        cuts = {0, along.extent} | {cut for cut in self._cuts(along, at) if 0 < cut < along.extent}
        ordered = sorted(cuts) if len(cuts) <= _MAX_SEGMENTS else [0, along.extent]
        return [(a, b - a) for a, b in itertools.pairwise(ordered)]

    @property
    def _guarded(self) -> bool:
        """Whether a branch condition depends on the vector axis."""
        return self.vector is not None and self.vector.var in self.accesses.guarded

    def _cuts(self, along: LoopAxis, at: At) -> set[int]:
        var = Var("cut", "int64")
        self._learn(var, along.extent)
        bindings, value = self._resolve(at | along.at(var))
        cuts: set[int] = set()
        for expression in [value, *(bound_value for _, bound_value in bindings)]:
            for condition in guards(expression):
                if uses(condition, var):
                    cuts |= _crossings(condition, var, self.analyzer)
        return cuts

    # --- reduction over other axes than the vector ----------------------------------------------------------------

    def _reduce_columns(self, at: At) -> tirx.Stmt:
        """Keep several vectors of results in registers, 8 unless the tiling says otherwise, while the reduced axes run.

        ```
        for block of 8 vectors:
            acc[0:8*lanes] = identity
            for r in reduce axes:
                for u in T.unroll(8): for v in T.vectorized(lanes): acc[...] = combine(acc[...], value)
            store acc
        ```
        """
        along = self._vector_loop(self.spatial)
        if along is not None and self._guarded and self._branches_on(along, at | self._free(), 0, along.extent):
            return self._nest([along], dict(at), self._reduce_scalar)
        if along is None:
            return self._reduce_scalar(at)
        lanes = fitting_lanes(along.extent, self.lanes)
        accumulators = allocate(self.tiling.column_vectors * lanes, dtype_of(self.stage.buffer), "acc")
        parts: list[tirx.Stmt] = [tirx.AllocBuffer(accumulators)]
        done, vectors = 0, along.extent // lanes
        for width in (width for width in (8, 4, 2, 1) if width <= self.tiling.column_vectors):
            count = (vectors - done) // width
            if count:
                start, size = done * lanes, width * lanes
                parts.append(self._column_blocks(at, along, start, size, count, width, lanes, accumulators))
                done += count * width
        if along.extent % lanes:
            last = _sum(along.begin, index(along.extent - lanes))
            parts.append(self._column_block(at, along, last, 1, lanes, accumulators))
        return sequence(*parts)

    def _free(self) -> At:
        return {axis.var: axis.var for part in self.reduce for axis in part.run}

    def _reduce_scalar(self, at: At) -> tirx.Stmt:
        accumulators = allocate(1, dtype_of(self.stage.buffer), "acc")
        return sequence(tirx.AllocBuffer(accumulators), self._column_block(at, None, index(0), 1, 1, accumulators))

    def _column_blocks(
        self, at: At, along: LoopAxis, start: int, size: int, count: int, width: int, lanes: int, accumulators: Var
    ) -> tirx.Stmt:
        def body(block: Var) -> tirx.Stmt:
            self._learn(block, count)
            return self._column_block(at, along, along.begin + index(start) + block * size, width, lanes, accumulators)

        return loop(count, body, name="block")

    def _column_block(
        self, at: At, along: LoopAxis | None, begin: Expr, width: int, lanes: int, accumulators: Var
    ) -> tirx.Stmt:
        def each(body: Callable[[Expr, At], tirx.Stmt]) -> tirx.Stmt:
            def lane(u: Var, v: Var) -> tirx.Stmt:
                self._learn(u, width)  # what holds in every lane is no branch of any
                self._learn(v, lanes)
                offset = u * lanes + v
                names, here = self._enter(along, begin + offset) if along else ([], {})
                return bound(names, body(offset, at | here))

            return unrolled(width, lambda u: vectorized(lanes, lambda v: lane(u, v)))

        def update(reduced: At) -> tirx.Stmt:
            conditions: list[Expr] = []

            def one(offset: Expr, here: At) -> tirx.Stmt:
                bindings, value = self._resolve(here | reduced)
                condition, others, inside = self._without_padding(bindings, value)
                if condition is None or any(uses(condition, var) for var in undefined_vars(offset)):
                    condition, others, inside = None, bindings, value
                conditions.append(condition)
                return bound(others, self._accumulate(accumulators, offset, inside))

            updates = each(one)
            return updates if conditions[0] is None else tirx.IfThenElse(conditions[0], updates, None)

        return sequence(
            each(lambda offset, here: store_flat(accumulators, offset, self.stage.identity)),
            self._nest(self.reduce, {}, update),
            each(lambda offset, here: self._store(here, [], load_flat(accumulators, offset))),
        )

    def _without_padding(
        self, bindings: list[tuple[Var, Expr]], value: Expr
    ) -> tuple[Expr, list[tuple[Var, Expr]], Expr]:
        """Return `if_then_else(c, x, identity)` as c and x: padding adds nothing, so one test skips all vectors."""
        named = bool(bindings) and isinstance(value, Var) and value.same_as(bindings[-1][0])
        whole, rest = (bindings[-1][1], bindings[:-1]) if named else (value, bindings)
        if rest or not isinstance(whole, Call) or not is_branch(whole):
            return None, bindings, value
        condition, inside, outside = whole.args
        if StructuralKey(outside) != StructuralKey(self.stage.identity):
            return None, bindings, value
        return condition, [], inside

    def _accumulate(self, accumulators: Var, offset: Expr, value: Expr) -> tirx.Stmt:
        return store_flat(accumulators, offset, self.stage.combined(load_flat(accumulators, offset), value))

    # --- reduction along the vector axis --------------------------------------------------------------------------

    def _reduce_row(self, at: At) -> tirx.Stmt:
        """Reduce a row with several vector accumulators, 4 unless the tiling says otherwise, then across the lanes.

        ```
        acc[0:4*lanes] = identity
        for outer reduced axes:
            for k in range(K // (4 * lanes)):
                for u in T.unroll(4): for v in T.vectorized(lanes): acc[...] = combine(acc[...], value)
            the last K % lanes elements: one vector that ends at K, lanes already counted masked by the identity
        store fold(acc)
        ```
        """
        along = self._vector_loop(self.reduce)
        assert along is not None
        if self._guarded and self._branches_on(along, at | self._free(), 0, along.extent):
            return self._reduce_scalar(at)
        lanes = fitting_lanes(along.extent, self.lanes)
        width = min(self.tiling.row_vectors, along.extent // lanes)
        dtype = dtype_of(self.stage.buffer)
        accumulators = allocate(width * lanes, dtype, "acc")

        def update(reduced: At) -> tirx.Stmt:
            return self._row_vectors(at | reduced, along, lanes, width, accumulators)

        clear = unrolled(
            width, lambda u: vectorized(lanes, lambda v: store_flat(accumulators, u * lanes + v, self.stage.identity))
        )
        outer = self._nest(self._others(self.reduce), {}, update)
        return sequence(tirx.AllocBuffer(accumulators), clear, outer, self._fold(at, accumulators, width, lanes, dtype))

    def _row_vectors(self, at: At, along: LoopAxis, lanes: int, width: int, accumulators: Var) -> tirx.Stmt:
        step = lanes * width
        main, rest, tail = along.extent // step, along.extent % step // lanes, along.extent % lanes

        def block(k: Var) -> tirx.Stmt:
            def vector(u: Var) -> tirx.Stmt:
                return self._row_vector(at, along, k * step + u * lanes, u * lanes, lanes, 0, accumulators)

            return unrolled(width, vector)

        parts = [loop(main, block)]
        for u in range(rest):
            position = index(main * step + u * lanes)
            parts.append(self._row_vector(at, along, position, index(u * lanes), lanes, 0, accumulators))
        if tail:
            last = index(along.extent - lanes)
            target = index((width - 1) * lanes)
            parts.append(self._row_vector(at, along, last, target, lanes, lanes - tail, accumulators))
        return sequence(*parts)

    def _row_vector(
        self, at: At, along: LoopAxis, position: Expr, target: Expr, lanes: int, skip: int, accumulators: Var
    ) -> tirx.Stmt:
        """Return the update of one accumulator by `lanes` elements from `position`, without the first `skip` lanes."""

        def body(v: Var) -> tirx.Stmt:
            names, here = self._enter(along, _sum(along.begin, position) + v)
            bindings, value = self._resolve(at | here)
            if skip:
                value = tirx.Select(v >= index(skip), value, self.stage.identity)
            return bound(names + bindings, self._accumulate(accumulators, target + v, value))

        return vectorized(lanes, body)

    def _fold(self, at: At, accumulators: Var, width: int, lanes: int, dtype: str) -> tirx.Stmt:
        at_lanes = [tirx.Ramp(index(u * lanes), index(1), lanes) if lanes > 1 else index(u) for u in range(width)]
        vectors = [load_flat(accumulators, position) for position in at_lanes]
        folds, scalar = fold_lanes(vectors, lanes, dtype, self.stage.combined)
        return sequence(*folds, self._store(at, [], scalar))


def _sum(a: Expr, b: Expr) -> Expr:
    return b if isinstance(a, tirx.IntImm) and int(a.value) == 0 else a + b


def _crossings(condition: Expr, var: Var, analyzer: sym.Analyzer) -> set[int]:
    """Return the positions of `var` where a comparison inside `condition` changes its value."""
    if isinstance(condition, tirx.And | tirx.Or):
        return _crossings(condition.a, var, analyzer) | _crossings(condition.b, var, analyzer)
    if isinstance(condition, tirx.Not):
        return _crossings(condition.a, var, analyzer)
    if type(condition) not in _COMPARISONS:
        return set()
    zero = tirx.const(0, var.ty.dtype)
    difference = condition.a - condition.b
    base = analyzer.simplify(substitute(difference, {var: zero}))
    step = analyzer.simplify(substitute(difference, {var: zero + 1}) - base)
    if not isinstance(base, tirx.IntImm) or not isinstance(step, tirx.IntImm) or int(step.value) == 0:
        return set()
    holds = _COMPARISONS[type(condition)]
    root = -int(base.value) // int(step.value)
    truth = [holds(int(base.value) + int(step.value) * at, 0) for at in range(root - 2, root + 3)]
    return {root - 1 + i for i in range(4) if truth[i] != truth[i + 1]}


_COMPARISONS: dict[type, Callable[[int, int], bool]] = {
    tirx.LT: operator.lt, tirx.LE: operator.le, tirx.GT: operator.gt, tirx.GE: operator.ge,
    tirx.EQ: operator.eq, tirx.NE: operator.ne,
}  # fmt: skip
