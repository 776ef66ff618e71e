"""Operators that onnx's reference implementation computes an element at a time, here for whole tensors by NumPy.

Tables of relative positions are written so while a model is traced: 38,000 elements took it a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]
Place = tuple[Any, ...]

_REDUCTIONS: Mapping[str, Callable[..., None]] = {
    "add": np.add.at, "mul": np.multiply.at, "max": np.maximum.at, "min": np.minimum.at,
}  # fmt: skip


class ScatterND(OpRun):  # type: ignore[misc]
    """Parts of a tensor replaced where rows of indices say, as ONNX's operator of that name."""

    def _run(self, data: Array, indices: Array, updates: Array, reduction: str | None = None) -> tuple[Array]:
        return (_written(data, tuple(np.moveaxis(indices, -1, 0)), updates, reduction),)


class ScatterElements(OpRun):  # type: ignore[misc]
    """Elements of a tensor replaced where indices along an axis say, as ONNX's operator of that name."""

    def _run(
        self, data: Array, indices: Array, updates: Array, axis: int = 0, reduction: str | None = None
    ) -> tuple[Array]:
        place: list[Any] = list(np.ogrid[tuple(slice(extent) for extent in indices.shape)])
        place[axis] = indices
        return (_written(data, tuple(place), updates, reduction),)


OPERATORS = (ScatterND, ScatterElements)
"""What takes the place of the reference's own. An index outside of an axis is an `IndexError`."""


def _written(data: Array, place: Place, updates: Array, reduction: str | None) -> Array:
    """Return `data` with `updates` in `place`: of several for one element the last, or all combined by `reduction`."""
    result: Array = data.copy()
    if reduction in (None, "none"):
        result[place] = updates
    else:
        _REDUCTIONS[reduction](result, place, updates)
    return result
