"""Weights in the order the micro-kernel reads them: [panel of lanes][k][lane], the last panel filled with zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def pack_matmul(weight: Array, lanes: int) -> Array:
    """Return a K x N matrix as [ceil(N / lanes), K, lanes]."""
    depth, channels = weight.shape
    panels = -(-channels // lanes)
    padded = np.zeros((depth, panels * lanes), weight.dtype)
    padded[:, :channels] = weight
    return np.ascontiguousarray(padded.reshape(depth, panels, lanes).transpose(1, 0, 2))


def pack_conv2d(weight: Array, groups: int, lanes: int) -> Array:
    """Return OIHW weights as [groups, ceil(O / groups / lanes), KH, KW, I, lanes]."""
    out_channels, in_channels, height, width = weight.shape
    per_group = out_channels // groups
    panels = -(-per_group // lanes)
    padded = np.zeros((groups, panels * lanes, in_channels, height, width), weight.dtype)
    padded[:, :per_group] = weight.reshape(groups, per_group, in_channels, height, width)
    blocked = padded.reshape(groups, panels, lanes, in_channels, height, width)
    return np.ascontiguousarray(blocked.transpose(0, 1, 4, 5, 3, 2))
