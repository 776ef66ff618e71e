"""Decomposition of maximum pools into their values and the places these are from.

    values = pool(x)                                                   an operator of this file: a kernel of its own
    places = min over taps, inside x, of place where x is the value    the first of equal ones
             max over taps of place where x is NaN                     of NaN: the last, which torch's pools find

Neither chain reads what it found twice: expressions are fused into one kernel, and would double with each tap. Where
nothing reads the places, torch drops them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional

from fusion.frontends.torch.operands import Converter, spread

aten = torch.ops.aten

_POOLS = {2: functional.max_pool2d, 3: functional.max_pool3d}


def _values(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    ceil_mode: bool,
) -> Tensor:  # fmt: skip
    return _POOLS[len(kernel)](x, kernel, stride, padding, dilation, ceil_mode).clone()


pool = torch.library.custom_op("fusion::max_pool", _values, mutates_args=())
pool.register_fake(_values)


def _places(
    x: Tensor, values: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:  # fmt: skip
    """Return where in an image of `x` each of its greatest values is first, counted along all of its axes."""
    axes = range(len(kernel))
    extents, cells = x.shape[-len(kernel) :], values.shape[-len(kernel) :]
    pads = list[int]()
    for axis in axes:
        reach = (cells[axis] - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        pads = [padding[axis], max(0, reach - padding[axis] - extents[axis]), *pads]
    padded = functional.pad(x, pads, value=-math.inf)
    beyond = math.prod(extents)
    first = torch.full(values.shape, beyond, dtype=torch.int64)
    last_nan = torch.full(values.shape, -1, dtype=torch.int64)
    for taps in product(*map(range, kernel)):
        seen, place, inside = padded, torch.zeros((), dtype=torch.int64), torch.ones((), dtype=torch.bool)
        for axis, tap in enumerate(taps):
            dim = x.ndim - len(kernel) + axis
            start, end = tap * dilation[axis], tap * dilation[axis] + (cells[axis] - 1) * stride[axis] + 1
            seen = aten.slice.Tensor(seen, dim, start, end, stride[axis])
            at = torch.arange(cells[axis]) * stride[axis] + (start - padding[axis])
            at = at.reshape([-1, *[1] * (len(kernel) - 1 - axis)])
            inside = inside & (at >= 0) & (at < extents[axis])
            place = place + at * math.prod(extents[axis + 1 :])
        first = torch.minimum(first, torch.where(inside & (seen == values), place, beyond))
        last_nan = torch.maximum(last_nan, torch.where(seen != seen, place, -1))
    return torch.where(values != values, last_nan, first)


def _pool_with_places(
    axes: int, x: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> Any:  # fmt: skip
    if not x.dtype.is_floating_point:
        return NotImplemented
    kernel, padding, dilation = (spread(each, axes) for each in (kernel, padding, dilation))
    stride = spread(stride, axes) if stride else kernel
    values = pool(x, kernel, stride, padding, dilation, ceil_mode)
    return values, _places(x, values, kernel, stride, padding=padding, dilation=dilation)


def _convert(node: fx.Node, importer: Any) -> Any:
    translate = importer._max_pool2d if len(node.args[1]) == 2 else importer._max_pool3d
    return importer.block_builder.emit(translate(node))  # a squeeze behind it is not


RULES = {
    aten.max_pool2d_with_indices.default: functools.partial(_pool_with_places, 2),
    aten.max_pool3d_with_indices.default: functools.partial(_pool_with_places, 3),
}
CONVERTERS: dict[str, Converter] = {"max_pool.default": _convert}
