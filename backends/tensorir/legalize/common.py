"""What the legalizations share: arithmetic in float32, and reductions over any axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx

Expr = Any


def _lowest(dtype: str) -> Expr:
    return tirx.const(float("-inf"), dtype) if is_float(dtype) else tirx.min_value(dtype)


def _highest(dtype: str) -> Expr:
    return tirx.const(float("inf"), dtype) if is_float(dtype) else tirx.max_value(dtype)


def is_float(dtype: object) -> bool:
    """Return whether elements of `dtype` may be NaN."""
    return str(dtype).startswith(("float", "bfloat"))


largest = te.comm_reducer(lambda a, b: tirx.max(a, b), _lowest, "max")
"""As `te.max`, but beginning with -inf: TVM begins with the lowest finite number, which rows of -inf do not reach."""
smallest = te.comm_reducer(lambda a, b: tirx.min(a, b), _highest, "min")

FLegalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
NARROW = ("float16", "bfloat16")


def wide(value: Expr) -> Expr:
    """Return a float16 or bfloat16 value as float32; others as they are. Sums over them need the wider mantissa."""
    return value.astype("float32") if str(value.ty.dtype) in NARROW else value


def wide_dtype(tensor: te.Tensor) -> str:
    """Return the type to compute in."""
    return "float32" if tensor.dtype in NARROW else tensor.dtype


_LARGEST_HALF = 65504.0


def number(value: float, dtype: str) -> Expr:
    """Return a constant, an infinity where float16 has nothing as large: TVM refuses to round there."""
    beyond = dtype == "float16" and abs(value) > _LARGEST_HALF
    return tirx.const(math.copysign(math.inf, value) if beyond else value, dtype)


def normalized_axes(axes: Sequence[Expr], rank: int) -> list[int]:
    """Return axes as sorted non-negative integers."""
    return sorted(int(axis) % rank for axis in axes)


def reduce_axes(shape: Sequence[Expr], axes: Sequence[int]) -> list[tirx.IterVar]:
    """Return a reduction variable for each of the axes."""
    return [te.reduce_axis((0, shape[axis]), f"k{axis}") for axis in axes]


def interleave(rank: int, reduced: dict[int, Expr], kept: Sequence[Expr]) -> list[Expr]:
    """Return a full index: the reduced axes from the dictionary, the others in order from `kept`."""
    rest = iter(kept)
    return [reduced[axis] if axis in reduced else next(rest) for axis in range(rank)]


def drop(indices: Sequence[Expr], axes: Sequence[int]) -> list[Expr]:
    """Return the indices without those of the given axes."""
    return [index for axis, index in enumerate(indices) if axis not in axes]
