"""Networks in 8 bits, whose products of bytes the evaluator sums exactly. ONNX Runtime's sums saturate on x86 without
VNNI."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

FIRST_OPSET = 19
"""From which on the evaluator has all that is here."""


class DequantizeLinear(OpRun):  # type: ignore[misc]
    """That of opsets 10 and 13: one scale, or one for each place along an axis."""

    def _run(
        self, x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None, *, axis: int | None = None, **_: Any
    ) -> tuple[np.ndarray]:  # the others are of later opsets
        along = 1 if axis is None else axis
        shape = [-1 if place == along % x.ndim else 1 for place in range(x.ndim)] if np.size(scale) > 1 else ()
        by, none = np.reshape(scale, shape), np.reshape(0 if zero is None else zero, shape)
        return ((x.astype(by.dtype) - none.astype(by.dtype)) * by,)


OPERATORS = (DequantizeLinear,)
