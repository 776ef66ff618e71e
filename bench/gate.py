"""The float64 gate: whether an engine's outputs are as right as float32 allows.

The error of one output is its largest absolute difference to the float64 reference as a share of the reference's
largest absolute value; for integers and booleans, the share of elements that differ. An output whose largest value is
below SMALLEST_SCALE, such as that of a text detector on an empty page, is judged as if it were SMALLEST_SCALE: float32
resolves 1e-7 of 1, and what sums and sigmoids of numbers around 1 leave far below that is rounding. An output passes if
its error is at most twice ONNX Runtime's error on the same inputs plus TOLERANCE / 10. This is the rule of
`torch._dynamo.utils.same`, with the largest difference in place of the root mean square, in which one bad element in a
million would not show.

In bfloat16 OpenVINO in bfloat16 takes ONNX Runtime's part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

Outputs = Mapping[str, np.ndarray]

TOLERANCE = 1e-3
# ONNX Runtime's Sigmoid is 0 below -19 (float64: 6e-9), which a share of the value itself would call an error of 100%.
SMALLEST_SCALE = 1e-3
_MULTIPLIER = 2.0
_SLACK = TOLERANCE / 10


@dataclass
class Verdict:
    """What the gate found for one engine on one model.

    Attributes:
        passed: Whether every output passed for every set of inputs.
        error: The largest error of the engine.
        baseline: The engine whose error measures what is allowed.
        baseline_error: Its largest error.
        reference: "float64", or "onnxruntime" where the model has no float64 evaluation; where that is the baseline
            too, TOLERANCE is allowed.
        reasons: One sentence per output that failed.
    """

    passed: bool = True
    error: float = 0.0
    baseline_error: float = 0.0
    reference: str = "float64"
    baseline: str = "onnxruntime"
    reasons: list[str] = field(default_factory=list)


def error_of(actual: np.ndarray, reference: np.ndarray) -> float:
    """Return the error of `actual`: infinite if shapes differ or NaN and infinities are misplaced."""
    if actual.shape != reference.shape:
        return float("inf")
    if reference.size == 0:
        return 0.0
    if reference.dtype.kind not in "fc":
        return float(np.mean(actual != reference))
    wide = actual.astype(np.float64)
    finite = np.isfinite(reference)
    if not (np.isfinite(wide) == finite).all() or not _same_special(wide[~finite], reference[~finite]):
        return float("inf")
    scale = np.abs(reference[finite]).max(initial=SMALLEST_SCALE)
    return float(np.abs(wide[finite] - reference[finite]).max(initial=0.0) / scale)


def _same_special(actual: np.ndarray, reference: np.ndarray) -> bool:
    return bool(np.array_equal(actual, reference, equal_nan=True))


def judge(verdict: Verdict, actual: Outputs, baseline: Outputs, reference: Outputs) -> None:
    """Enter one set of outputs into `verdict`: `actual` against `reference`, allowing what `baseline` allows."""
    for name, expected in reference.items():
        if name not in actual:
            verdict.passed = False
            verdict.reasons.append(f"{name}: there is no such output")
            continue
        error, base = error_of(actual[name], expected), error_of(baseline[name], expected)
        verdict.error = max(verdict.error, error)
        verdict.baseline_error = max(verdict.baseline_error, base)
        allowed = TOLERANCE if verdict.reference == verdict.baseline else _MULTIPLIER * base + _SLACK
        if not error <= allowed:
            verdict.passed = False
            verdict.reasons.append(f"{name}: error {error:.2e}, allowed {allowed:.2e}")
