"""Walk neighbouring axes as one where every access does, so that short inner axes still fill vectors."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Var

from backends.tensorir.accesses import Access, Accesses
from backends.tensorir.emit import int64
from backends.tensorir.extents import Extent, is_same
from backends.tensorir.stages import Axis

Expr = Any
Run = tuple[Axis, ...]


def collapse_runs(axes: Iterable[Axis], accesses: Accesses) -> list[Run]:
    """Return the axes in runs of neighbours (a, b) with step(a) = extent(b) * step(b) in every access.

    An axis that a branch condition depends on stays alone, and so does one that is counted.

    [1, 64, 7, 7] + [1, 64, 7, 7] is one run of 3,136; with a bias over the 64 it is two, 64 and 49.
    """
    runs: list[list[Axis]] = []
    for axis in axes:
        alone = accesses.guarded | accesses.counted
        free = not alone & {axis.var, *([runs[-1][-1].var] if runs else [])}
        if runs and free and all(_walks_on(runs[-1][-1], axis, access) for access in accesses.all):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return [tuple(run) for run in runs]


def _walks_on(a: Axis, b: Axis, access: Access) -> bool:
    if a.extent == 1:
        return True
    outer, inner = access.steps[a.var], access.steps[b.var]
    if outer is None or inner is None:
        return False
    # Of 0 times a symbol TVM makes a node, which is none of Python's numbers.
    standing = isinstance(inner, int) and inner == 0
    return is_same(outer, 0 if standing else inner * b.extent)


def run_extent(run: Run) -> Extent:
    """Return the trip count of a run."""
    return prod(axis.extent for axis in run)


def axis_values(run: Run, position: Expr) -> dict[Var, Expr]:
    """Return the value of each axis of a run at a position of the run."""
    values: dict[Var, Expr] = {}
    for axis in reversed(run[1:]):
        extent = int64(axis.extent)
        values[axis.var] = tirx.floormod(position, extent)
        position = tirx.floordiv(position, extent)
    return {**values, run[0].var: position}
