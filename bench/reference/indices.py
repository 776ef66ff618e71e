"""Operators that make and read indices, which are what the model makes of them in float32, and not what is nearest to
that in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_cast import cast_to


class Cast(OpRun):  # type: ignore[misc]
    """A float becomes a whole number as its float32: `log(2) / log(16) * 8` with a constant of float32 below it is
    1.999999994 in float64, and T5 looked into another bucket of distances."""

    def _run(
        self, x: np.ndarray, to: int | None = None, saturate: int | None = None, round_mode: str = "up"
    ) -> tuple[np.ndarray]:
        assert to is not None, "the operator has a type"
        is_whole = to != onnx.TensorProto.STRING and onnx.helper.tensor_dtype_to_np_dtype(to).kind in "iu"
        if is_whole and x.dtype == np.float64:
            x = x.astype(np.float32)
        return (np.asarray(cast_to(x, to, saturate is None or bool(saturate), round_mode)),)


class GatherElements(OpRun):  # type: ignore[misc]
    """The evaluator's own takes an axis that is counted from the end for another one, and indices of no more than one
    size."""

    def _run(self, x: np.ndarray, indices: np.ndarray, **options: Any) -> tuple[np.ndarray]:
        axis = (options.get("axis") or 0) % x.ndim
        read = tuple(slice(None if place == axis else count) for place, count in enumerate(indices.shape))
        return (np.take_along_axis(x[read], np.where(indices < 0, indices + x.shape[axis], indices), axis),)


OPERATORS = (Cast, GatherElements)
