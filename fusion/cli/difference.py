"""How far one output is from another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class OutputDifference:
    """How far one output is from another.

    Attributes:
        absolute: Largest absolute difference; None where the two cannot be subtracted.
        relative: Its share of the largest expected magnitude.
        why: Why they cannot be subtracted.
    """

    absolute: float | None = None
    relative: float | None = None
    why: str = ""

    def within(self, tolerance: float) -> bool:
        """Return whether the relative difference is at most `tolerance`."""
        return self.relative is not None and self.relative <= tolerance

    def __str__(self) -> str:
        return self.why or f"largest error {self.absolute:.3g}, relative {self.relative:.3g}"


def difference(actual: np.ndarray, expected: np.ndarray) -> OutputDifference:
    """Return how far `actual` is from `expected`."""
    if actual.shape != expected.shape:
        return OutputDifference(why=f"the shapes differ: {list(actual.shape)} and {list(expected.shape)}")
    if actual.dtype.kind in "OUST" or expected.dtype.kind in "OUST":
        wrong = float(not np.array_equal(actual, expected))
        return OutputDifference(wrong, wrong)
    left, right = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(right)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True) or not np.isfinite(left[finite]).all():
        return OutputDifference(why="one has a NaN or an infinity where the other has not")
    absolute = float(np.abs(left[finite] - right[finite]).max(initial=0.0))
    scale = float(np.abs(right[finite]).max(initial=0.0))
    return OutputDifference(absolute, absolute / scale if scale else absolute)
