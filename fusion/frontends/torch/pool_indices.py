"""Decomposition of maximum pools into their values and the places these are from.

    values = pool(x)                                                   an operator of this file: a kernel of its own
    places = min over taps, inside x, of place where x is the value    the first of equal ones
             max over taps of place where x is NaN                     of NaN: the last, which torch's pools find

A large window is looked through along one axis after the other, from the last on: what is first in its row is first of
all in the first row that has the value.

Neither chain reads what it found twice: expressions are fused into one kernel, and would double with each tap. Where
nothing reads the places, torch drops them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.nn import functional

from fusion.frontends.torch.operands import Converter, spread

aten = torch.ops.aten

_POOLS = {2: functional.max_pool2d, 3: functional.max_pool3d}


_MOST_TAPS = 16
"""Of a window that is looked through at once. One of 13 x 13 took 30 s of CPU time to compile: each tap is some ten
operators of a graph, and a term of one kernel."""


class PoolWindow(NamedTuple):
    """What a pool says of its windows, each list a number for an axis."""

    kernel: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    ceil_mode: bool

    def along(self, axis: int) -> PoolWindow:
        """Return the windows along one axis alone."""

        def only(numbers: Sequence[int], other: int) -> list[int]:
            return [number if at == axis else other for at, number in enumerate(numbers)]

        kernel, stride, dilation = (only(each, 1) for each in (self.kernel, self.stride, self.dilation))
        return PoolWindow(kernel, stride, only(self.padding, 0), dilation, self.ceil_mode)


def _values(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    ceil_mode: bool,
) -> Tensor:  # fmt: skip
    return _POOLS[len(kernel)](x, kernel, stride, padding, dilation, ceil_mode).clone()


pool = torch.library.custom_op("fusion::max_pool", _values, mutates_args=())
pool.register_fake(_values)


def _places(x: Tensor, values: Tensor, window: PoolWindow) -> Tensor:
    """Return where in an image of `x` each of its greatest values is first, counted along all of its axes."""
    axes, extents = tuple(range(len(window.kernel))), x.shape[-len(window.kernel) :]
    if math.prod(window.kernel) <= _MOST_TAPS:
        return _places_along(axes, x, values, torch.zeros((), dtype=torch.int64), extents=extents, window=window)
    seen, places = x, torch.zeros((), dtype=torch.int64)
    for axis in reversed(axes):
        alone = window.along(axis)
        greatest = values if axis == 0 else pool(seen, *alone)
        seen, places = greatest, _places_along((axis,), seen, greatest, places, extents=extents, window=window)
    return places


def _places_along(
    axes: Sequence[int], x: Tensor, values: Tensor, places: Tensor, extents: Sequence[int], window: PoolWindow
) -> Tensor:
    """Return where in an image of these extents the greatest `values` of windows along some axes are first; `places`
    are those of the elements of `x`, counted along the axes behind these."""
    kernel, stride, padding, dilation, _ = window
    dims = {axis: x.ndim - len(kernel) + axis for axis in axes}
    pads = [0, 0] * len(kernel)
    for axis, dim in dims.items():
        reach = (values.shape[dim] - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        behind = 2 * (len(kernel) - 1 - axis)
        pads[behind : behind + 2] = padding[axis], max(0, reach - padding[axis] - x.shape[dim])
    padded = functional.pad(x, pads, value=-math.inf)
    padded_places = functional.pad(places, pads) if places.ndim else places
    beyond = math.prod(extents)
    first = torch.full(values.shape, beyond, dtype=torch.int64)
    last_nan = torch.full(values.shape, -1, dtype=torch.int64)
    for taps in product(*(range(kernel[axis]) for axis in axes)):
        seen, place, inside = padded, padded_places, torch.ones((), dtype=torch.bool)
        for (axis, dim), tap in zip(dims.items(), taps, strict=True):
            cells, start = values.shape[dim], tap * dilation[axis]
            part = dim, start, start + (cells - 1) * stride[axis] + 1, stride[axis]
            seen = aten.slice.Tensor(seen, *part)
            place = aten.slice.Tensor(place, *part) if places.ndim else place
            at = torch.arange(cells) * stride[axis] + (start - padding[axis])
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
    return values, _places(x, values, PoolWindow(kernel, stride, padding, dilation, ceil_mode))


def _convert(node: fx.Node, importer: Any) -> Any:
    translate = importer._max_pool2d if len(node.args[1]) == 2 else importer._max_pool3d
    return importer.block_builder.emit(translate(node))  # a squeeze behind it is not


RULES = {
    aten.max_pool2d_with_indices.default: functools.partial(_pool_with_places, 2),
    aten.max_pool3d_with_indices.default: functools.partial(_pool_with_places, 3),
}
CONVERTERS: dict[str, Converter] = {"max_pool.default": _convert}
