"""Decompositions of reductions, scans, sorting and norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _min(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return torch.amin(x, [dim], keepdim), torch.argmin(x, dim, keepdim)


def _max(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return torch.amax(x, [dim], keepdim), torch.argmax(x, dim, keepdim)


def _var_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    dims = _dims(x, dim)
    return torch.var(x, dims, correction=correction, keepdim=keepdim), torch.mean(x, dims, keepdim)


def _dims(x: Tensor, dim: Sequence[int] | None) -> list[int]:
    return [axis % x.ndim for axis in dim] if dim else list(range(x.ndim))


def _of_nothing(value: float, x: Tensor, dim: Sequence[int] | None, keepdim: bool, dtype: torch.dtype) -> Any:
    """Return `value` for a reduction over axes of which one has no entries: kernels have values of their own for it."""
    dims = _dims(x, dim)
    if all(x.shape[axis] for axis in dims):
        return NotImplemented
    kept = [1 if axis in dims else size for axis, size in enumerate(x.shape)]
    shape = kept if keepdim else [size for axis, size in enumerate(x.shape) if axis not in dims]
    return torch.full(shape, value, dtype=dtype)


def _mean(x: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    return _of_nothing(math.nan, x, None, False, dtype or x.dtype)


def _mean_of(
    x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    return _of_nothing(math.nan, x, dim, keepdim, dtype or x.dtype)


def _var(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    return _of_nothing(math.nan, x, dim, keepdim, x.dtype)


def _any(x: Tensor) -> Tensor:
    return torch.any(x.reshape(-1).to(torch.bool), 0)


def _any_of(x: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Any:
    return _of_nothing(False, x, [dim] if isinstance(dim, int) else dim, keepdim, torch.bool)


def _widened(x: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    return dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)


def _scan(scan: Callable[[Tensor, int], Tensor], x: Tensor, dim: int, dtype: torch.dtype | None) -> Any:
    """Return running sums or products of wide numbers; of one number, which has no axis, itself."""
    wide = _widened(x, dtype)
    if not x.ndim:
        return x.to(wide).clone()
    return NotImplemented if wide == x.dtype else scan(x.to(wide), dim)


def _cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    return _scan(torch.cumsum, x, dim, dtype)


def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    return _scan(torch.cumprod, x, dim, dtype)


def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    largest = torch.amax(x, [dim], True)
    return torch.log(torch.cumsum(torch.exp(x - largest), dim)) + largest


def _sort(x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    return aten.sort.default(x, dim, descending)


def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Any order is right where none is asked for."""
    return NotImplemented if sorted else aten.topk.default(x, k, dim, largest, True)


def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, indices = aten.sort.default(x, dim, False)
    found = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def _median_of(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the lower of two in the middle, and where it is; NaN, which is last in order, where there is one."""
    if not x.ndim:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    values, places = aten.sort.default(x, dim, False)
    middle, last = (
        [each.narrow(dim, at, 1) if keepdim else each.select(dim, at) for each in (values, places)]
        for at in ((x.shape[dim] - 1) // 2, x.shape[dim] - 1)
    )
    if not x.dtype.is_floating_point:
        return middle[0], middle[1]
    is_nan = last[0] != last[0]
    return torch.where(is_nan, last[0], middle[0]), torch.where(is_nan, last[1], middle[1])


def _median(x: Tensor) -> Tensor:
    if x.numel():
        return _median_of(x.reshape(-1), 0)[0]
    return torch.full((), math.nan if x.dtype.is_floating_point else torch.iinfo(x.dtype).min, dtype=x.dtype)


def _norm(
    x: Tensor, ord: Any = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    if ord != 0:
        return NotImplemented
    dims = list(dim) if dim is not None else list(range(x.ndim))
    return (x != 0).to(dtype or x.dtype).sum(dims, keepdim)


def _dist(left: Tensor, right: Tensor, p: Any = 2) -> Tensor:
    return torch.linalg.vector_norm(left - right, p)


def _cdist(left: Tensor, right: Tensor, p: float, compute_mode: int | None = None) -> Tensor:
    return torch.linalg.vector_norm(left.unsqueeze(-2) - right.unsqueeze(-3), p, [-1])


RULES = {
    aten.max.dim: _max,
    aten.min.dim: _min,
    aten.any.default: _any,
    aten.any.dim: _any_of,
    aten.any.dims: _any_of,
    aten.mean.default: _mean,
    aten.mean.dim: _mean_of,
    aten.var.correction: _var,
    aten.var_mean.correction: _var_mean,
    aten.cumsum.default: _cumsum,
    aten.cumprod.default: _cumprod,
    aten.logcumsumexp.default: _logcumsumexp,
    aten.sort.stable: _sort,
    aten.topk.default: _topk,
    aten.kthvalue.default: _kthvalue,
    aten.median.dim: _median_of,
    aten.median.default: _median,
    aten.linalg_vector_norm.default: _norm,
    aten.dist.default: _dist,
    aten._cdist_forward.default: _cdist,
}
