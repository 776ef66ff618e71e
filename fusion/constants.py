"""Constants of Relax, and tensors under another shape or with their axes in another order: made now of a constant, and
by an operator of what only the run knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.ir import GenericConst

from fusion.shapes import static_shape
from fusion.tensors import as_numpy


def constant(array: npt.NDArray[Any]) -> GenericConst:
    """Return `array` as a constant of its own dtype; `relax.const` alone narrows int64 and float64 to 32 bits."""
    return relax.const(tvm.runtime.tensor(np.ascontiguousarray(array).reshape(array.shape)))


def reshaped(builder: relax.BlockBuilder, data: relax.Expr, shape: tuple[int, ...]) -> relax.Expr:
    """Return `data` under another shape."""
    if static_shape(data) == shape:
        return data
    if isinstance(data, GenericConst):
        return constant(as_numpy(data.value).reshape(shape))
    # Through `relax.op.reshape`, 0 would stand for the size that there is.
    return builder.emit(relax.Call(tvm.ir.Op.get("relax.reshape"), [data, relax.ShapeExpr(list(shape))]))


def transposed(builder: relax.BlockBuilder, data: relax.Expr, axes: Sequence[int]) -> relax.Expr:
    """Return `data` with its axes permuted."""
    if list(axes) == list(range(len(axes))):
        return data
    if isinstance(data, GenericConst):
        return constant(as_numpy(data.value).transpose(axes))
    return builder.emit(relax.op.permute_dims(data, list(axes)))
