"""The form of a check in NumPy, for constants and for values of which the run alone knows a shape."""

from __future__ import annotations

import numpy as np

from fusion.errors import ExecutionError
from fusion.guards.conditions import Bounds, Condition, Finite
from fusion.guards.kinds import Guard, failure


def first_failure(values: np.ndarray, guard: Guard) -> ExecutionError | None:
    """Return the error of the first of `values` that fails, as the kernel of `guard` raises it; None if all hold."""
    columns = _columns(values, guard)
    failed = np.stack([_fails(column, test) for column, test in zip(columns.T, guard.conditions, strict=True)], axis=1)
    if not failed.any():
        return None
    row, column = np.unravel_index(np.argmax(failed), failed.shape)
    bounds = guard.conditions[column].numbers
    return failure(guard.what, guard.where, guard.why[column], columns[row, column].item(), bounds)


def kept(values: np.ndarray, guard: Guard) -> np.ndarray:
    """Return what readers get in place of `values`, all of which hold: integers as int64, other numbers as float32."""
    columns = _columns(values, guard)
    for column, condition in zip(columns.T, guard.conditions, strict=True):
        if isinstance(condition, Bounds) and condition.wrap:
            column[column < 0] += condition.wrap
    return columns.reshape(values.shape)


def _columns(values: np.ndarray, guard: Guard) -> np.ndarray:
    """Return a copy of `values` in which each column has one condition."""
    wide = "int64" if values.dtype.kind in "iub" else "float32"
    columns: np.ndarray = values.reshape(-1, len(guard.conditions)).astype(wide)
    return columns


def _fails(column: np.ndarray, condition: Condition) -> np.ndarray:
    """Return which values do not hold, NaN among them."""
    if isinstance(condition, Bounds):
        holds: np.ndarray = (column >= condition.low) & (column <= condition.high)
    else:
        holds = np.isfinite(column) if isinstance(condition, Finite) else column != 0
    return ~holds
