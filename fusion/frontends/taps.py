"""Interpolation along one axis of an image: each place of the result is a sum of a few weighted slices of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.relax import Expr


@dataclass(frozen=True)
class Taps:
    """What an axis of the result is made of.

    Attributes:
        indices: The slices that each place reads, int64 of [places, taps].
        weights: What they are multiplied by, float64 of the same shape.
        outside: Which places take a fill value instead; None where none does.
    """

    indices: np.ndarray
    weights: np.ndarray
    outside: np.ndarray | None = None


def interpolated(x: Expr, axis: int, taps: Taps) -> Expr:
    """Return the sum over taps of weight times gathered slice; of integers, each place has one tap of weight 1."""
    rank, dtype = len(x.ty.shape), str(x.ty.dtype.dtype)
    shape = [-1 if at == axis else 1 for at in range(rank)]
    total: Expr | None = None
    for indices, weights in zip(taps.indices.T, taps.weights.T, strict=True):
        term = relax.op.take(x, relax.const(np.ascontiguousarray(indices), "int64"), axis)
        if not np.all(weights == 1.0):
            term = relax.op.multiply(term, relax.const(weights.reshape(shape), dtype))
        total = term if total is None else relax.op.add(total, term)
    assert total is not None
    return total


def keys_cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Return Keys' kernel ("Cubic convolution interpolation for digital image processing", 1981)."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
