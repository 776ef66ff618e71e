"""Compares outputs as onnx's own backend test runner does: dtype and shape exact, values to the test's tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def mismatch(produced: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float) -> str:
    """Return what differs between two lists of outputs, or "" where nothing does."""
    if len(produced) != len(expected):
        return f"{len(produced)} outputs instead of {len(expected)}"
    problems = (_mismatch_of_one(p, e, rtol, atol) for p, e in zip(produced, expected, strict=True))
    return next((problem for problem in problems if problem), "")


def _mismatch_of_one(produced: Any, expected: Any, rtol: float, atol: float) -> str:
    if isinstance(expected, list):
        return mismatch(produced, expected, rtol, atol) if isinstance(produced, list) else "not a sequence"
    if expected is None or produced is None:
        return "" if expected is produced else "one optional is empty"
    produced, expected = np.asarray(produced), np.asarray(expected)
    if produced.dtype != expected.dtype:
        return f"dtype {produced.dtype} instead of {expected.dtype}"
    if produced.shape != expected.shape:
        return f"shape {produced.shape} instead of {expected.shape}"
    return _mismatch_of_values(produced, expected, rtol, atol)


def _mismatch_of_values(produced: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> str:
    if expected.dtype.kind in "OUSb":
        return "" if bool(np.array_equal(produced, expected)) else "values differ"
    if expected.dtype.kind != "c":  # float8 and other small types compare as the numbers they stand for
        produced, expected = produced.astype(np.float64), expected.astype(np.float64)
    if np.allclose(produced, expected, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    wrong = ~np.isclose(produced, expected, rtol=rtol, atol=atol, equal_nan=True)
    return f"{int(wrong.sum())} of {wrong.size} values differ, first {produced[wrong][0]} for {expected[wrong][0]}"
