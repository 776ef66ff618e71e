"""Weights in the order the micro-kernel reads them: [panel of lanes][k][lane], the last panel filled with zeros.

bfloat16, of which an instruction multiplies two steps of k: [panel of lanes][k / 2][lane][k % 2], the last two axes as
one, an odd k filled with a zero.
"""

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


def pack_matmul_pairs(weight: Array, lanes: int) -> Array:
    """Return a K x N matrix as [ceil(N / lanes), ceil(K / 2), lanes * 2]."""
    return _pair_steps(pack_matmul(weight, lanes))


def pack_conv2d(weight: Array, groups: int, lanes: int) -> Array:
    """Return OIHW weights as [groups, ceil(O / groups / lanes), KH, KW, I, lanes]."""
    out_channels, in_channels, height, width = weight.shape
    per_group = out_channels // groups
    panels = -(-per_group // lanes)
    padded = np.zeros((groups, panels * lanes, in_channels, height, width), weight.dtype)
    padded[:, :per_group] = weight.reshape(groups, per_group, in_channels, height, width)
    blocked = padded.reshape(groups, panels, lanes, in_channels, height, width)
    return np.ascontiguousarray(blocked.transpose(0, 1, 4, 5, 3, 2))


def pack_conv2d_pairs(weight: Array, groups: int, lanes: int, merged: bool) -> Array:
    """Return OIHW weights as [groups, ceil(O / groups / lanes), KH, KW, ceil(I / 2), lanes * 2], or, `merged`, with the
    taps of a row and their channels as one k: [..., KH, 1, ceil(KW * I / 2), lanes * 2]."""
    packed = pack_conv2d(weight, groups, lanes)
    *outer, width, depth, _ = packed.shape
    return _pair_steps(packed.reshape(*outer, 1, width * depth, lanes) if merged else packed)


def _pair_steps(packed: Array) -> Array:
    """Return [..., K, lanes] as [..., ceil(K / 2), lanes * 2]."""
    *outer, depth, lanes = packed.shape
    even = np.zeros((*outer, -(-depth // 2) * 2, lanes), packed.dtype)
    even[..., :depth, :] = packed
    pairs = even.reshape(*outer, -1, 2, lanes).swapaxes(-1, -2)
    return np.ascontiguousarray(pairs).reshape(*outer, -1, lanes * 2)
