"""Decompositions of reading and writing by index: negative indices count from the end, several become one.

    x[:, i, j]          -> index_select(reshape(transpose(x)), i * n + j)
    x[:, i, j] = value  -> scatter of the same indices
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _select(x: Tensor, dim: int, index: int) -> Any:
    return NotImplemented if index >= 0 else aten.select.int(x, dim, index + x.shape[dim])


def _wrapped(index: Tensor, extent: int) -> Tensor:
    index = index.to(torch.int64)
    return torch.where(index < 0, index + extent, index)


class _Plan:
    """How several index tensors become one index into `rows`: the indexed axes, flattened, in front of the others."""

    def __init__(self, shape: Sequence[int], indices: Sequence[Tensor | None]) -> None:
        self.dims = [dim for dim, index in enumerate(indices) if index is not None]
        self.rest = [dim for dim in range(len(shape)) if dim not in self.dims]
        given = torch.broadcast_tensors(*(index for index in indices if index is not None))
        self.shape = list(given[0].shape)
        self.extents = [shape[dim] for dim in self.dims]
        self.others = [shape[dim] for dim in self.rest]
        self.index = torch.zeros((), dtype=torch.int64)
        for position, (index, extent) in enumerate(zip(given, self.extents, strict=True)):
            term = _wrapped(index, extent) * math.prod(self.extents[position + 1 :])
            self.index = term if position == 0 else self.index + term
        adjacent = self.dims == list(range(self.dims[0], self.dims[0] + len(self.dims)))
        # Index axes that are not neighbours go to the front.
        self.place = self.dims[0] if adjacent else 0

    def rows(self, x: Tensor) -> Tensor:
        """[..] -> [product of the indexed axes, product of the others]"""
        return x.permute(*self.dims, *self.rest).reshape(math.prod(self.extents), math.prod(self.others))

    def to_front(self) -> list[int]:
        """The permutation that brings the axes of the index of a result to its front."""
        count = len(self.shape)
        axes = list(range(self.place, self.place + count))
        return axes + [axis for axis in range(count + len(self.rest)) if axis not in axes]

    def from_front(self) -> list[int]:
        """The inverse of `to_front`."""
        front = self.to_front()
        return [front.index(axis) for axis in range(len(front))]


def _has_mask(indices: Sequence[Tensor | None]) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


def _index(x: Tensor, indices: Sequence[Tensor | None]) -> Any:
    if _has_mask(indices):
        return NotImplemented
    plan = _Plan(x.shape, indices)
    taken = torch.index_select(plan.rows(x), 0, plan.index.reshape(-1))
    return taken.reshape(plan.shape + plan.others).permute(plan.from_front())


def _index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    if _has_mask(indices):
        return _masked_put(x, indices, values, accumulate)
    plan = _Plan(x.shape, indices)
    front = plan.to_front()
    full = plan.shape + plan.others
    shape = [full[axis] for axis in plan.from_front()]
    rows = plan.rows(x)
    new = values.to(x.dtype).expand(shape).permute(front).reshape(-1, rows.shape[1])
    index = plan.index.reshape(-1, 1).expand(new.shape)
    written = rows.scatter_add(0, index, new) if accumulate else rows.scatter(0, index, new)
    order = plan.dims + plan.rest
    back = [order.index(axis) for axis in range(len(order))]
    return written.reshape(plan.extents + plan.others).permute(back)


def _masked_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Any:
    """One value where a mask is set; more values would go where only the run knows."""
    (mask, *others) = [index for index in indices if index is not None]
    leading = next(position for position, index in enumerate(indices) if index is not None)
    if others or values.numel() != 1 or mask.dtype != torch.bool:
        return NotImplemented
    behind = x.ndim - leading - mask.ndim
    chosen = mask.reshape([*([1] * leading), *mask.shape, *([1] * behind)])
    value = values.to(x.dtype).reshape(())
    return torch.where(chosen, x + value if accumulate else value, x)


def _unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    if x.ndim == 0:
        return x.reshape(1).expand(size)
    dim = dimension % x.ndim
    count = (x.shape[dim] - size) // step + 1
    starts = torch.arange(count)[:, None] * step
    index = (starts + torch.arange(size)[None, :]).reshape(-1)
    windows = torch.index_select(x, dim, index).reshape([*x.shape[:dim], count, size, *x.shape[dim + 1 :]])
    return windows.movedim(dim + 1, -1)


def _as_strided(x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Any:
    if not x.is_contiguous() or x.storage_offset() != 0:
        return NotImplemented
    index = torch.full((), storage_offset or 0, dtype=torch.int64)
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        shape = [1] * len(size)
        shape[axis] = extent
        index = index + (torch.arange(extent) * step).reshape(shape)
    return torch.index_select(x.reshape(-1), 0, index.reshape(-1)).reshape(size)


def _take(x: Tensor, index: Tensor) -> Tensor:
    flat = torch.index_select(x.reshape(-1), 0, _wrapped(index, x.numel()).reshape(-1))
    return flat.reshape(index.shape)


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    prefix: list[Tensor | None] = [None] * (dim % x.ndim)
    return aten.index_put(x, [*prefix, index], source if alpha == 1 else source * alpha, True)


def _index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    prefix: list[Tensor | None] = [None] * (dim % x.ndim)
    return aten.index_put(x, [*prefix, index], source, False)


def _index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """torch's own ends in a copy by strides, for which there is no converter."""
    if not x.ndim:
        return _index_fill(x.reshape(1), 0, index, value).reshape(())
    prefix: list[Tensor | None] = [None] * (dim % x.ndim)
    filling = value.to(x.dtype) if isinstance(value, Tensor) else torch.full((), value, dtype=x.dtype)
    return aten.index_put(x, [*prefix, index], filling, False)


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The value that goes to a set place is the one of `source` with as many set places before it."""
    x, mask = torch.broadcast_tensors(x, mask)
    count = torch.cumsum(mask.reshape(-1).to(torch.int64), 0) - 1
    places = torch.clamp(count, 0, source.numel() - 1)
    return torch.where(mask, torch.index_select(source.reshape(-1), 0, places).reshape(x.shape), x)


def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """torch takes a tensor of shape (0,) for none, whatever the rank of the others."""
    kept = [tensor for tensor in tensors if tuple(tensor.shape) != (0,)]
    return NotImplemented if not kept or len(kept) == len(tensors) else torch.cat(kept, dim)


_STARTS: dict[str, Any] = {"sum": 0, "mean": 0, "prod": 1}


def _start(reduce: str, dtype: torch.dtype) -> Any:
    """Return the value that changes no result of `reduce`."""
    if reduce in _STARTS:
        return _STARTS[reduce]
    low = reduce == "amax"
    if dtype.is_floating_point:
        return -math.inf if low else math.inf
    limits = torch.iinfo(dtype)
    return limits.min if low else limits.max


def _scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    if not include_self:
        x = x.scatter(dim, index, _start(reduce, x.dtype))
        return torch.scatter_reduce(x, dim, index, src, reduce) if reduce != "mean" else _mean(x, dim, index, src, 0)
    return _mean(x, dim, index, src, 1) if reduce == "mean" else NotImplemented


def _mean(x: Tensor, dim: int, index: Tensor, src: Tensor, counted: int) -> Tensor:
    ones = torch.ones_like(x)
    counts = ones if counted else ones.scatter(dim, index, 0)
    return x.scatter_add(dim, index, src) / counts.scatter_add(dim, index, torch.ones_like(src))


def _view(x: Tensor, size: Sequence[int]) -> Any:
    """An operator's decomposition may lay its result out otherwise than the operator does, as that of attention does,
    and then no view of it is one of theirs; here nothing is written to, and a copy has the same elements."""
    return NotImplemented if x.is_contiguous() else x.clone(memory_format=torch.contiguous_format).view(size)


def _one_hot(x: Tensor, num_classes: int = -1) -> Any:
    """Ones that are scattered, whose places the run checks; torch has the host assert them first."""
    if num_classes < 1:
        return NotImplemented
    nothing = torch.zeros([*x.shape, num_classes], dtype=torch.int64)
    return nothing.scatter(-1, x.to(torch.int64).unsqueeze(-1), 1)


RULES = {
    aten.one_hot.default: _one_hot,
    aten.view.default: _view,
    aten.cat.default: _cat,
    aten.select.int: _select,
    aten.index.Tensor: _index,
    aten._unsafe_index.Tensor: _index,
    aten.index_put.default: _index_put,
    aten._unsafe_index_put.default: _index_put,
    aten.unfold.default: _unfold,
    aten.as_strided.default: _as_strided,
    aten.take.default: _take,
    aten.index_add.default: _index_add,
    aten.index_copy.default: _index_copy,
    aten.index_fill.int_Scalar: _index_fill,
    aten.index_fill.int_Tensor: _index_fill,
    aten.masked_scatter.default: _masked_scatter,
    aten.scatter_reduce.two: _scatter_reduce,
}
