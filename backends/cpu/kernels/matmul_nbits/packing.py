"""Weights of 4 bits, their scales and their zero points in the order in which a panel's blocks are read.

    weights   [panel][block][8 of k][column of the panel][4]     bytes: k = i in the lower half, k = 4 + i in the upper
    scales    [panel][block][column of the panel]                float32 or float16
    zeros     [panel][block][column of the panel]                int8: -z, or float32: 8 - z

What is missing in the last panel is zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from backends.cpu.kernels.matmul_nbits.sums_function import WEIGHTS
from partition.access import NBITS_MIDDLE

Array = npt.NDArray[Any]


def pack_operand(given: Array, width: int) -> Array:
    """Return weights [N, blocks, bytes], scales [N, blocks], or zeros [N, blocks, 1] in panels of `width` columns."""
    if given.ndim == 2:
        return _in_panels(given, width)
    if given.shape[-1] > 1:
        return _packed_weights(given, width)
    zeros = given[..., 0]
    return _in_panels(-zeros.astype("int8") if zeros.dtype == np.uint8 else np.float32(NBITS_MIDDLE) - zeros, width)


def _packed_weights(given: Array, width: int) -> Array:
    _, blocks, half = given.shape
    padded = _padded(given, width).reshape(-1, width, blocks, half * 2 // WEIGHTS, WEIGHTS // 2)
    nibbles = np.stack([padded & 15, padded >> 4], -1).reshape(*padded.shape[:-1], 2, WEIGHTS // 2)
    paired = nibbles[..., 0, :] | nibbles[..., 1, :] << 4
    return np.ascontiguousarray(paired.transpose(0, 2, 3, 1, 4))


def _in_panels(given: Array, width: int) -> Array:
    """Return [N, blocks] as [panels, blocks, width]."""
    padded = _padded(given, width)
    return np.ascontiguousarray(padded.reshape(-1, width, given.shape[1]).transpose(0, 2, 1))


def _padded(given: Array, width: int) -> Array:
    missing = -len(given) % width
    return np.pad(given, [(0, missing), *[(0, 0)] * (given.ndim - 1)])
