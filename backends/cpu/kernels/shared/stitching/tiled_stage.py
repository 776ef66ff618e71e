"""One stage inside a tile: the loops around its statements, and what is known inside of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Range, Var

from backends.tensorir.accesses import Access, Accesses
from backends.tensorir.collapsing import Run, axis_values, run_extent
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.extents import Extent
from backends.tensorir.flat_buffers import flat_buffer, store_flat
from backends.tensorir.inlining import Place, Resolver, guards, uses
from backends.tensorir.open_analyzer import Analyzer
from backends.tensorir.stages import Axis, Stage, dtype_of
from fusion.structural import contains

At = dict[Var, Expr]
Names = list[tuple[Var, Expr]]
"""Variables, and what each is a name of."""


@dataclass(frozen=True)
class LoopAxis:
    """The part of a run of axes that a tile covers: [begin, begin + extent)."""

    run: Run
    begin: Expr
    extent: Extent

    def has(self, axis: Axis) -> bool:
        """Return whether the axis is one of the run."""
        return axis in self.run

    def at(self, position: Expr) -> At:
        """Return the values of the axes at a position."""
        return axis_values(self.run, position)


@dataclass(frozen=True)
class StageLoops:
    """The loops of a stage inside a tile.

    Attributes:
        at: Value of each axis that the tile holds fixed.
        spatial, reduce: The loops to write, in order.
        vector: The axis whose neighbours become lanes; None for scalar code.
    """

    at: At
    spatial: Sequence[LoopAxis]
    reduce: Sequence[LoopAxis]
    vector: Axis | None

    def along(self, axes: Sequence[LoopAxis]) -> LoopAxis | None:
        """Return the one of `axes` that is vectorised."""
        return next((axis for axis in axes if self.vector is not None and axis.has(self.vector)), None)

    def others(self, axes: Sequence[LoopAxis]) -> list[LoopAxis]:
        """Return those of `axes` that are not."""
        return [axis for axis in axes if self.vector is None or not axis.has(self.vector)]


@dataclass(frozen=True)
class Scope:
    """How values are written at a place inside loops.

    Attributes:
        nest: Takes the loops.
        inlined, place, analyzer: As in `Resolver`.
    """

    nest: Nest
    inlined: Mapping[Var, Stage]
    place: Place
    analyzer: Analyzer

    def learn(self, var: Var, extent: Extent) -> None:
        """Take in that `var` is below `extent`, and at least 0."""
        self.analyzer.bind(var, Range.from_min_extent(int64(0), int64(extent)))

    def resolve(self, value: Expr, at: At) -> tuple[Names, Expr]:
        """Return `value` where axes have the values `at`, in which what is computed twice has a name."""
        resolver = Resolver(self.inlined, self.place, self.analyzer)
        resolved = resolver.resolve(value, at)
        return resolver.bindings, resolved

    def name(self, names: Names) -> None:
        """Add the variables that values of `resolve` are made of."""
        self.nest.extend(tirx.Bind(var, value) for var, value in names)

    def enter(self, along: LoopAxis, position: Expr) -> At:
        """Return the axes' values at a position; a run's position gets a name first, and one that a symbol limits.

        TVM simplifies (p // 7) * 7 + p % 7 to p for a variable p, but not for p = v + 35.
        """
        if len(along.run) == 1 and isinstance(along.run[0].extent, int):
            return along.at(position)
        name = self.nest.bind("p", position)
        self.learn(name, run_extent(along.run))
        return along.at(name)


@dataclass(frozen=True)
class TiledStage:
    """A stage inside a tile.

    Attributes:
        stage: What to compute.
        accesses: Its store, then its loads.
        loops: Those to write.
        scope: What is known inside of those around it.
    """

    stage: Stage
    accesses: Accesses
    loops: StageLoops
    scope: Scope

    @property
    def nest(self) -> Nest:
        """What takes the loops."""
        return self.scope.nest

    @contextmanager
    def over(self, axes: Sequence[LoopAxis], at: At) -> Iterator[At]:
        """Open serial loops over `axes`, outermost first; give `at` with the values of their axes."""
        with ExitStack() as opened:
            for axis in axes:
                var = opened.enter_context(self.nest.run(axis.run[-1].var.name, axis.extent))
                self.scope.learn(var, axis.extent)
                at = at | self.scope.enter(axis, sum_of(axis.begin, var))
            yield at

    def accumulators(self, elements: int) -> Var:
        """Return a buffer for as many results, which lives to the end of the enclosing loop body."""
        buffer = flat_buffer(elements, dtype_of(self.stage.buffer), "acc")
        self.nest.add(tirx.AllocBuffer(buffer))
        return buffer

    def resolve(self, at: At) -> tuple[Names, Expr]:
        """Return the value of the stage where axes have the values `at`."""
        return self.scope.resolve(self.stage.value, at)

    def store(self, at: At, names: Names, value: Expr) -> None:
        """Add the store of `value`, in which `names` occur."""
        stored = self.stage.stored_at([at[axis.var] for axis in self.stage.spatial])
        target = self.scope.place(self.stage.buffer, stored)
        self.scope.name(names)
        self.nest.add(store_flat(target.source, target.indices[-1] if target.indices else int64(0), value))

    @property
    def is_guarded(self) -> bool:
        """Whether a branch condition depends on the vector axis."""
        return self.loops.vector is not None and self.loops.vector.var in self.accesses.guarded

    def branches_on(self, along: LoopAxis, at: At, begin: Extent, extent: Extent) -> bool:
        """Return whether a branch condition still depends on the vector axis within a segment of it."""
        probe = self._probe(extent)
        names, value = self.resolve(at | along.at(along.begin + int64(begin) + probe))
        return any(uses(guard, probe) for part in [value, *(b for _, b in names)] for guard in guards(part))

    def lanes_may_idle(self, along: LoopAxis, at: At, turned: Access | None = None) -> bool:
        """Return whether lanes past the end of an axis may be computed of anything: but for a `turned` load none is
        from a place of its own, and no integers are divided by data, which ends the process where that is 0."""
        vector, accesses = self.loops.vector, [access for access in self.accesses.all if access is not turned]
        if vector is None or any(access.steps[vector.var] not in (0, 1) for access in accesses):
            return False
        names, value = self.resolve(at | along.at(along.begin + self._probe(along.extent)))
        return not any(contains(part, (_DIVISIONS, _is_by_data)) for part in [value, *(b for _, b in names)])

    def _probe(self, extent: Extent) -> Var:
        probe = Var("probe", "int64")
        self.scope.learn(probe, extent)
        return probe

    def splits_lanes(self, along: LoopAxis, at: At) -> bool:
        """Return whether the lanes of a reduction would branch differently."""
        free = {axis.var: axis.var for part in self.loops.reduce for axis in part.run}
        return self.is_guarded and self.branches_on(along, at | free, 0, along.extent)


_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)


def _is_by_data(division: Expr) -> bool:
    """Return whether a division is one of integers, and not by a constant."""
    return "int" in str(division.ty.dtype) and not isinstance(division.b, tirx.IntImm)


def sum_of(a: Expr, b: Expr) -> Expr:
    """Return a + b, without an a that is 0."""
    return b if isinstance(a, tirx.IntImm) and int(a.value) == 0 else a + b
