"""Decompositions of pools, bags, searches and scans of the greatest, and of the convolutions that TVM lacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

aten = torch.ops.aten


def _adaptive_max(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Gather each window, as wide as the widest: its last place again does not change its greatest element, the first
    of which is the index."""
    rank, first = len(output_size), x.ndim - len(output_size)
    extents = list(x.shape[first:])
    places = torch.zeros((), dtype=torch.int64)
    for axis, (extent, out) in enumerate(zip(extents, output_size, strict=True)):
        width = max(-(-(cell + 1) * extent // out) - cell * extent // out for cell in range(out))
        cells = torch.arange(out)[:, None] * extent
        table = torch.minimum(cells // out + torch.arange(width), (cells + extent - 1) // out)
        x = torch.index_select(x, first + 2 * axis, table.reshape(-1))
        x = x.reshape([*x.shape[: first + 2 * axis], out, width, *x.shape[first + 2 * axis + 1 :]])
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = out, width
        places = places + table.reshape(shape) * math.prod(extents[axis + 1 :])
    order = [*range(first), *range(first, x.ndim, 2), *range(first + 1, x.ndim, 2)]
    x = x.permute(order).reshape([*x.shape[:first], *output_size, -1])
    flat = places.reshape(-1)
    width = flat.numel() // math.prod(output_size)
    cells = (torch.arange(math.prod(output_size)) * width).reshape(list(output_size))
    return torch.amax(x, [-1]), torch.take(flat, torch.argmax(x, -1) + cells)


def _embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Sum, mean or greatest of the rows of each bag, which lasts until the next begins; zeros for one without rows."""
    offsets = offsets[:-1] if include_last_offset else offsets
    bag = (torch.arange(indices.shape[0])[:, None] >= offsets[None, :]).to(torch.int64).sum(1) - 1
    counted = indices != padding_idx
    rows = torch.index_select(weight, 0, indices)
    rows = rows if per_sample_weights is None else rows * per_sample_weights[:, None]
    counts = torch.zeros_like(offsets, dtype=torch.int64).index_add(0, bag, counted.to(torch.int64))
    shape = [offsets.shape[0], weight.shape[1]]
    if mode == 2:
        rows = torch.where(counted[:, None], rows, -math.inf)
        lowest = torch.full(shape, -math.inf, dtype=weight.dtype)
        found = torch.scatter_reduce(lowest, 0, bag[:, None].expand(rows.shape), rows, "amax")
        found = torch.where(counts[:, None] == 0, 0.0, found)
    else:
        rows = torch.where(counted[:, None], rows, 0.0)
        found = torch.zeros(shape, dtype=weight.dtype).index_add(0, bag, rows)
        found = found / torch.clamp(counts, min=1)[:, None].to(weight.dtype) if mode == 1 else found
    return found, bag, counts, offsets


def _search(
    boundaries: Tensor, values: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:  # fmt: skip
    """Count the boundaries before each value; all are before NaN. Where torch puts values among NaN is not defined."""
    if sorter is not None:
        return NotImplemented
    value = (values if isinstance(values, Tensor) else torch.full((), values)).unsqueeze(-1)
    rows = boundaries if boundaries.ndim == 1 else boundaries.unsqueeze(-2)
    behind = rows > value if right or side == "right" else rows >= value
    return torch.logical_not(behind).to(torch.int64).sum(-1).to(torch.int32 if out_int32 else torch.int64)


def _bucketize(values: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Any:
    return _search(boundaries, values, out_int32=out_int32, right=right)


def _extremes(wins: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
    """Scan by doubling: after n steps an element knows the extreme of the 2**n up to it, the last of equal ones."""

    def scan(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        if x.ndim == 0:
            return x, torch.zeros_like(x, dtype=torch.int64)
        extent = x.shape[dim]
        shape = [1] * x.ndim
        shape[dim] = extent
        places = torch.arange(extent).reshape(shape).expand(x.shape)
        step = 1
        while step < extent:
            before, index = (
                torch.cat([value.narrow(dim, 0, step), value.narrow(dim, 0, extent - step)], dim)
                for value in (x, places)
            )
            kept = (x != x) | (wins(x, before) & (before == before))
            x, places = torch.where(kept, x, before), torch.where(kept, places, index)
            step *= 2
        return x, places

    return scan


def _convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Any:  # fmt: skip
    """A transposed convolution over three axes: one of the input with zeros between, by the turned weights, where
    `SplitConv3dTranspose` would leave it as it is."""
    if not transposed or x.ndim != 5 or (groups == 1 and x.dtype == torch.float32):
        return NotImplemented
    pads: list[int] = []
    for axis in range(3):
        dim, apart, extent = axis + 2, stride[axis], x.shape[axis + 2]
        spread = torch.cat([x.unsqueeze(dim + 1), *[torch.zeros_like(x).unsqueeze(dim + 1)] * (apart - 1)], dim + 1)
        spread = spread.reshape([*x.shape[:dim], extent * apart, *x.shape[dim + 1 :]])
        x = spread.narrow(dim, 0, (extent - 1) * apart + 1)
        border = dilation[axis] * (weight.shape[dim] - 1) - padding[axis]
        pads = [border, border + output_padding[axis], *pads]
    inputs, outputs, *window = weight.shape
    turned = weight.flip([2, 3, 4]).reshape(groups, inputs // groups, outputs, *window).transpose(1, 2)
    kernel = turned.reshape(groups * outputs, inputs // groups, *window)
    return functional.conv3d(functional.pad(x, pads), kernel, bias, 1, 0, dilation, groups)


RULES = {
    aten.adaptive_max_pool2d.default: _adaptive_max,
    aten.adaptive_max_pool3d.default: _adaptive_max,
    aten._embedding_bag.default: _embedding_bag,
    aten._embedding_bag_forward_only.default: _embedding_bag,
    aten.searchsorted.Tensor: _search,
    aten.searchsorted.Scalar: _search,
    aten.bucketize.Tensor: _bucketize,
    aten.cummax.default: _extremes(torch.ge),
    aten.cummin.default: _extremes(torch.le),
    aten.convolution.default: _convolution,
}
