"""The matrix of a discrete Fourier transform of constant length."""

from __future__ import annotations

import numpy as np


def fourier_matrix(length: int, bins: int, read: int, *, inverse: bool) -> np.ndarray:
    """Return the factors, float64 of [read, 2, bins, 2], by which a row of `read` complex numbers, real and imaginary
    parts, is multiplied for the first `bins` of its transform of `length`, whose inverse is a mean."""
    # Whole turns are left out in integers: the angle of a large product has no accurate cosine. Zeros are exact.
    turns = np.outer(np.arange(read), np.arange(bins)) % length / length
    factors = np.exp((2j if inverse else -2j) * np.pi * turns).round(15) / (length if inverse else 1)
    matrix = np.stack([factors.real, factors.imag, -factors.imag, factors.real], -1)
    return np.ascontiguousarray(matrix.reshape(read, bins, 2, 2).transpose(0, 2, 1, 3))
