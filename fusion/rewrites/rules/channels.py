"""Where the channels are: of convolutions and products, and behind reshapes and permutations."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from fusion.rewrites.graph import Value

Array = npt.NDArray[Any]
OUTPUT = {
    "nn.conv1d": (1, 0), "nn.conv2d": (1, 0), "nn.conv3d": (1, 0), "matmul": (-1, 1),
    "nn.conv1d_transpose": (1, 1), "nn.conv2d_transpose": (1, 1),
}  # fmt: skip
"""Operator -> (axis of output channels in its result, the same in its weights)."""
_INPUT_FIRST = {"nn.conv1d_transpose": "IOW", "nn.conv2d_transpose": "IOHW"}
"""Transposed convolution -> the layout of its weights."""
INPUT = {"nn.conv1d": (1, 1), "nn.conv2d": (1, 1), "nn.conv3d": (1, 1), "matmul": (-1, 0)}
"""Operator -> (axis of input channels in its operand, the same in its weights)."""


def has_constant_weights(value: Value) -> bool:
    """Return whether a convolution or product has weights that are known and lie as OUTPUT says: of the type of its
    result, or narrow ones, whose sums are float32."""
    weight = value.weight
    if not weight.is_weight and not (weight.is_narrow and value.dtype == "float32"):
        return False
    if value.op == "matmul":
        return len(weight.shape) == 2 and len(value.data.shape) > 1
    if not str(value.attrs.data_layout).startswith("NC"):
        return False
    if value.op in _INPUT_FIRST:
        return str(value.attrs.kernel_layout) == _INPUT_FIRST[value.op] and int(value.attrs.groups) == 1
    return str(value.attrs.kernel_layout).startswith("OI")


def channels(array: Array, axis: int) -> Array | None:
    """Return the elements of what varies along `axis` alone, or not at all; None for anything else."""
    varies = [place for place, extent in enumerate(array.shape) if extent > 1]
    return array.reshape(-1) if varies in ([], [axis % array.ndim]) else None


def along(values: Array, axis: int, rank: int) -> Array:
    """Return a vector shaped to broadcast along `axis` of a tensor of `rank`."""
    return values.reshape([-1 if place == axis % rank else 1 for place in range(rank)])


def through_view(value: Value, array: Array) -> Array | None:
    """Return what broadcasts to the operand of a view as `array` does to its result; None where nothing does."""
    inner = value.data.shape
    if array.size == 1:
        return array.reshape((1,) * len(inner))
    if value.op == "permute_dims":
        axes = value.attrs.axes
        order = list(reversed(range(len(inner)))) if axes is None else [int(axis) % len(inner) for axis in axes]
        return np.transpose(array, np.argsort(order))
    varies = [axis for axis, extent in enumerate(array.shape) if extent > 1]
    if len(varies) != 1:
        return None
    before, extent = prod(value.shape[: varies[0]]), value.shape[varies[0]]
    for axis in range(len(inner)):
        if prod(inner[:axis]) == before and inner[axis] == extent:
            return along(array, axis, len(inner))
    return None
