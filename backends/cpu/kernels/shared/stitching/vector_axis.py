"""Which axis of a stage the lanes of its vectors lie along, and whether what it reads lies along another."""

from __future__ import annotations

from dataclasses import dataclass

import tvm_ffi

from backends.tensorir.accesses import Access, Accesses
from backends.tensorir.collapsing import Run, collapse_runs, run_extent
from backends.tensorir.extents import typical
from backends.tensorir.stages import Axis, Stage, dtype_of

# A vector axis shorter than this is not worth its overlapping rest.
_SHORT_AXIS = 4
# The rows of a square that the interleaving network turns are vectors of as many elements as fit of 4 bytes; narrower
# elements fill a part of a register.
ELEMENT_BYTES = 4
_TURNED_BYTES = (2, 4)


def choose_vector_axis(stage: Stage, accesses: Accesses) -> Axis | None:
    """Return the axis along which most accesses are contiguous or constant; None where every axis is too short.

    Ties go to the longer axis, then to the innermost; a reduced axis is charged one access for its fold across lanes.
    """
    best: tuple[float, int, int] | None = None
    chosen, distinct = None, accesses.distinct
    runs = collapse_runs(stage.spatial, accesses) + collapse_runs(stage.reduce, accesses)
    for number, run in enumerate(runs):
        axis = _innermost(run)
        extent = typical(run_extent(run))
        if extent < _SHORT_AXIS:
            continue
        steps = [access.steps[axis.var] for access in distinct]
        strided, contiguous = sum(step not in (0, 1) for step in steps), steps.count(1)
        reduced = axis in stage.reduce
        score = (-strided + contiguous * 0.5 - (0.25 if reduced else 0), number, extent)
        # The fold across lanes binds vectors: TVM cannot bind one of booleans, nor legalise a bound one of bfloat16.
        if dtype_of(stage.buffer) in ("bool", "bfloat16") and reduced:
            continue
        if contiguous and (best is None or score >= best):
            best, chosen = score, axis
    return chosen


def _innermost(run: Run) -> Axis:
    """Return the last axis of a run with more than one position."""
    return next((axis for axis in reversed(run) if axis.extent != 1), run[-1])


@dataclass(frozen=True)
class Turn:
    """A load to be turned.

    Attributes:
        load: The access that is contiguous along `across`.
        across: The load's contiguous axis.
    """

    load: Access
    across: Axis


def find_turn(stage: Stage, accesses: Accesses, vector: Axis | None, lanes: int) -> Turn | None:
    """Return the load of a map that is strided along the vector axis and contiguous along another long axis."""
    if stage.combine is not None or vector is None or accesses.guarded:
        return None
    run = next(run for run in collapse_runs(stage.spatial, accesses) if vector in run)
    if typical(run_extent(run)) < lanes:
        return None
    for load in accesses.loads:
        strided = load.steps[vector.var] not in (None, 0, 1)
        long = [axis for axis in stage.spatial if axis not in run and typical(axis.extent) >= lanes]
        across = next((axis for axis in long if load.steps[axis.var] == 1), None)
        if strided and across is not None and _can_turn(dtype_of(load.buffer)):
            return Turn(load, across)
    return None


def _can_turn(dtype: str) -> bool:
    """Return whether the interleaving network is for elements of `dtype`: TVM cannot legalise a bound vector of
    bfloat16."""
    return dtype != "bfloat16" and tvm_ffi.dtype(dtype).itemsize in _TURNED_BYTES
