"""Indices of loops that are all of known extents: how far they move along an axis, and those that are affine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Range, Var
from tvm.sym import Analyzer

from backends.tensorir.emit import Expr, int64
from backends.tensorir.stages import Axis, substitute


def analyzer_below(extents: Iterable[tuple[Var, int]]) -> Analyzer:
    """Return an analyzer that knows each variable to be at least 0 and below its extent."""
    analyzer = Analyzer()
    for var, extent in extents:
        analyzer.bind(var, Range(*(tirx.const(end, var.ty.dtype) for end in (0, extent))))
    return analyzer


def analyzer_over(axes: Iterable[Axis]) -> Analyzer:
    """Return an analyzer that knows where axes end."""
    return analyzer_below((axis.var, int(axis.extent)) for axis in axes)


def step_of(index: Expr, axis: Axis, analyzer: Analyzer) -> int | None:
    """Return by how much an index grows from one place of an axis to the next, 0 where there is no next; None where
    that is no constant."""
    if axis.extent == 1:
        return 0
    step = analyzer.simplify(substitute(index, {axis.var: axis.var + 1}) - index)
    return int(step.value) if isinstance(step, tirx.IntImm) else None


@dataclass(frozen=True)
class AffineIndex:
    """`start + sum(steps * axes)`, with a step for each axis."""

    start: int
    steps: tuple[int, ...]

    @classmethod
    def of(cls, index: Expr, axes: Sequence[Axis], analyzer: Analyzer) -> AffineIndex | None:
        """Return an index over these axes as numbers; None where it has other variables, or steps that are none."""
        steps = [step for step in (step_of(index, axis, analyzer) for axis in axes) if step is not None]
        start = analyzer.simplify(substitute(index, {axis.var: int64(0) for axis in axes}))
        if len(steps) < len(axes) or not isinstance(start, tirx.IntImm):
            return None
        return cls(int(start.value), tuple(steps))
