"""Writes a stage without a reduction: neighbours along one axis become lanes."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.shared.stitching.tiled_stage import At, LoopAxis, TiledStage, sum_of
from backends.tensorir.emit import Expr, int64
from backends.tensorir.extents import Extent
from backends.tensorir.inlining import guards, uses
from backends.tensorir.open_analyzer import Analyzer
from backends.tensorir.stages import substitute
from backends.tensorir.vectors import map_vectors, open_vectors

_MAX_SEGMENTS = 64


@dataclass(frozen=True)
class MapWriter:
    """Writes the elements of one stage.

    Attributes:
        lanes: Elements per vector.
        unroll: Vectors that are computed side by side.
    """

    tiled: TiledStage
    lanes: int
    unroll: int

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
            lanes = 1 if tiled.is_guarded and tiled.branches_on(along, at, begin, extent) else self.lanes
            first = sum_of(along.begin, int64(begin))
            start = int64(0) if tiled.is_guarded else first
            for position in self._vectors(along, at, start, extent, lanes):
                if tiled.is_guarded:
                    here = at | self._in_segment(along, position, first, extent)
                else:
                    here = at | tiled.scope.enter(along, position)
                tiled.store(here, *tiled.resolve(here))

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
        if not self.tiled.is_guarded or not isinstance(along.begin, tirx.IntImm) or not isinstance(along.extent, int):
            return [(0, along.extent)]
        cuts = {0, along.extent} | {cut for cut in self._cuts(along, at) if 0 < cut < along.extent}
        ordered = sorted(cuts) if len(cuts) <= _MAX_SEGMENTS else [0, along.extent]
        return [(a, b - a) for a, b in itertools.pairwise(ordered)]

    def _cuts(self, along: LoopAxis, at: At) -> set[int]:
        var = Var("cut", "int64")
        self.tiled.scope.learn(var, along.extent)
        names, value = self.tiled.resolve(at | along.at(var))
        cuts: set[int] = set()
        for expression in [value, *(named for _, named in names)]:
            for condition in guards(expression):
                if uses(condition, var):
                    cuts |= _crossings(condition, var, self.tiled.scope.analyzer)
        return cuts


def _crossings(condition: Expr, var: Var, analyzer: Analyzer) -> set[int]:
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
