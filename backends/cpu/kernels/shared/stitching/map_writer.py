"""Writes a stage without a reduction: neighbours along one axis become lanes."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.tirx import ForKind

from backends.cpu.kernels.shared.stitching.tiled_stage import At, LoopAxis, TiledStage, sum_of
from backends.tensorir.emit import Expr, int64
from backends.tensorir.extents import Extent, difference, extent_of, is_at_most, is_same
from backends.tensorir.flat_buffers import load_flat, store_flat
from backends.tensorir.inlining import guards, uses
from backends.tensorir.open_analyzer import Analyzer
from backends.tensorir.stages import substitute
from backends.tensorir.vectors import fitting_lanes, map_vectors, open_vectors
from fusion.structural import contains

_MAX_SEGMENTS = 64


@dataclass(frozen=True)
class MapWriter:
    """Writes the elements of one stage.

    Attributes:
        lanes: Elements per vector.
        unroll: Vectors that are computed side by side.
        in_place: Whether it reads what it writes over: a last vector that overlaps the one before it is computed first.
    """

    tiled: TiledStage
    lanes: int
    unroll: int
    in_place: bool

    def write(self) -> None:
        """Add the loops."""
        loops = self.tiled.loops
        with self.tiled.over(loops.others(loops.spatial), dict(loops.at)) as at:
            self._row(at)

    def _row(self, at: At) -> None:
        tiled = self.tiled
        along = tiled.loops.along(tiled.loops.spatial)
        if along is None:
            tiled.store(at, *tiled.resolve(at))
            return
        for begin, extent in self._segments(along, at):
            # lanes that branch differently would each be a scalar anyway, and TVM's vectoriser gets them wrong
            may_branch = tiled.is_guarded or not isinstance(extent, int)
            lanes = 1 if may_branch and tiled.branches_on(along, at, begin, extent) else self.lanes
            first = sum_of(along.begin, int64(begin))
            start = int64(0) if tiled.is_guarded else first
            if self.in_place and isinstance(extent, int) and extent % fitting_lanes(extent, lanes):
                self._row_in_place(along, at, extent, fitting_lanes(extent, lanes))
                continue
            for position in self._vectors(along, at, start, extent, lanes):
                if tiled.is_guarded:
                    here = at | self._in_segment(along, position, first, extent)
                else:
                    here = at | tiled.scope.enter(along, position)
                tiled.store(here, *tiled.resolve(here))

    def _row_in_place(self, along: LoopAxis, at: At, extent: int, lanes: int) -> None:
        tiled = self.tiled
        nest, last, whole = tiled.nest, extent - lanes, extent // lanes * lanes
        held = tiled.accumulators(lanes)
        with nest.run("v", lanes, ForKind.VECTORIZED) as v:
            names, value = tiled.resolve(at | tiled.scope.enter(along, sum_of(along.begin, last + v)))
            tiled.scope.name(names)
            nest.add(store_flat(held, v, value))
        for position in self._vectors(along, at, along.begin, whole, lanes):
            here = at | tiled.scope.enter(along, position)
            tiled.store(here, *tiled.resolve(here))
        with nest.run("v", lanes, ForKind.VECTORIZED) as v:
            here = at | tiled.scope.enter(along, sum_of(along.begin, last + v))
            tiled.store(here, [], load_flat(held, v))

    def _vectors(self, along: LoopAxis, at: At, start: Expr, extent: Extent, lanes: int) -> Iterator[Expr]:
        nest, learn = self.tiled.nest, self.tiled.scope.learn
        if isinstance(extent, int):
            return map_vectors(nest, start, extent, lanes=lanes, unroll=self.unroll, learn=learn)
        masks = lanes > 1 and self.tiled.lanes_may_idle(along, at)
        return open_vectors(nest, start, extent, lanes=lanes, unroll=self.unroll, learn=learn, masks=masks)

    def _in_segment(self, along: LoopAxis, position: Expr, first: Expr, extent: Extent) -> At:
        """Return the axes' values at a position of a segment, whose range decides the branches."""
        name = self.tiled.nest.bind("p", position)
        self.tiled.scope.learn(name, extent)
        return along.at(sum_of(first, name))

    def _segments(self, along: LoopAxis, at: At) -> list[tuple[Extent, Extent]]:
        """Cut the vector axis where a branch condition changes (concat, pad), so that no lane needs a branch."""
        whole: list[Extent] = [0, along.extent]
        if not self.tiled.is_guarded or not isinstance(along.begin, tirx.IntImm):
            return [(0, along.extent)]
        cuts, extent = self._cuts(along, at), along.extent
        if isinstance(extent, int):
            inside = {cut for cut in cuts if isinstance(cut, int) and 0 < cut < extent}
            ordered: list[Extent] = sorted({*whole, *inside})
        else:
            ordered = _in_order([*whole, *cuts])
        ordered = ordered if len(ordered) <= _MAX_SEGMENTS else whole
        return [(a, difference(b, a)) for a, b in itertools.pairwise(ordered)]

    def _cuts(self, along: LoopAxis, at: At) -> list[Extent]:
        var = Var("cut", "int64")
        self.tiled.scope.learn(var, along.extent)
        names, value = self.tiled.resolve(at | along.at(var))
        cuts: list[Extent] = []
        for expression in [value, *(named for _, named in names)]:
            for condition in guards(expression):
                if uses(condition, var):
                    cuts += _crossings(condition, var, self.tiled.scope.analyzer)
        return cuts


def _in_order(cuts: Sequence[Extent]) -> list[Extent]:
    """Return cuts that only a call knows, from the first to the last of all, in their order at all sizes; without those
    that may be before or behind another."""
    first, last, *others = cuts
    ordered = [first, last]
    for cut in others:
        place = next((at for at, other in enumerate(ordered) if is_at_most(cut, other)), 0)
        apart = place > 0 and is_at_most(ordered[place - 1], cut)
        if apart and not any(is_same(cut, other) for other in ordered):
            ordered.insert(place, cut)
    return ordered


def _crossings(condition: Expr, var: Var, analyzer: Analyzer) -> list[Extent]:
    """Return the positions of `var` where a comparison inside `condition` changes its value."""
    if isinstance(condition, tirx.And | tirx.Or):
        return _crossings(condition.a, var, analyzer) + _crossings(condition.b, var, analyzer)
    if isinstance(condition, tirx.Not):
        return _crossings(condition.a, var, analyzer)
    if type(condition) not in _COMPARISONS:
        return []
    zero = tirx.const(0, var.ty.dtype)
    difference = condition.a - condition.b
    base = extent_of(analyzer.simplify(substitute(difference, {var: zero})))
    step = extent_of(analyzer.simplify(substitute(difference, {var: zero + 1}) - base))
    holds = _COMPARISONS[type(condition)]
    if not isinstance(step, int) or step == 0:
        return []
    if not isinstance(base, int):
        return _open_crossings(base, step, holds, analyzer)
    root = -base // step
    truth = [holds(base + step * at, 0) for at in range(root - 2, root + 3)]
    return [root - 1 + i for i in range(4) if truth[i] != truth[i + 1]]


def _open_crossings(base: Extent, step: int, holds: Callable[[int, int], bool], analyzer: Analyzer) -> list[Extent]:
    """Return where `holds(base + step * var, 0)` changes: at the root, or behind it."""
    if abs(step) != 1 or contains(base, (TensorLoad, lambda load: True)):
        return []
    truth = [holds(step * at, 0) for at in (-1, 0, 1)]
    root = base * -step
    return [extent_of(analyzer.simplify(root + i)) for i in range(2) if truth[i] != truth[i + 1]]


_COMPARISONS: dict[type, Callable[[int, int], bool]] = {
    tirx.LT: operator.lt, tirx.LE: operator.le, tirx.GT: operator.gt, tirx.GE: operator.ge,
    tirx.EQ: operator.eq, tirx.NE: operator.ne,
}  # fmt: skip
