"""Decompositions of resizing where TVM's operators follow other rules than torch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

aten = torch.ops.aten


def _sizes(x: Tensor, size: Sequence[int] | None, scales: Sequence[float] | None) -> tuple[list[int], list[float]]:
    """Return the extents of the result, and how far apart the places are that it reads."""
    extents = list(x.shape[2:])
    if size is None:
        assert scales is not None
        size = [int(extent * scale) for extent, scale in zip(extents, scales, strict=True)]
    steps = [extent / out for extent, out in zip(extents, size, strict=True)]
    if scales is not None:
        steps = [1 / scale for scale in scales]
    return list(size), steps


def _nearest(x: Tensor, size: Sequence[int] | None, scales: Sequence[float] | None = None) -> Any:
    sizes, steps = _sizes(x, size, scales)
    if all(step <= 1 and (1 / step).is_integer() for step in steps):
        return NotImplemented
    for dim, (out, step) in enumerate(zip(sizes, steps, strict=True), 2):
        places = (torch.arange(out, dtype=torch.float32) * step).to(torch.int64)
        x = torch.index_select(x, dim, torch.clamp(places, 0, x.shape[dim] - 1))
    return x


def _bilinear(x: Tensor, size: Sequence[int] | None, align_corners: bool, scales: Sequence[float] | None = None) -> Any:
    sizes, steps = _sizes(x, size, scales)
    even = all(abs(extent / out - step) < 1e-9 for extent, out, step in zip(x.shape[2:], sizes, steps, strict=True))
    if align_corners or even:
        return NotImplemented
    return decomposition_table[aten.upsample_bilinear2d.vec](x, size, align_corners, scales)


def _triangle(distance: Tensor) -> Tensor:
    return torch.clamp(1 - distance.abs(), min=0.0)


def _cubic(distance: Tensor) -> Tensor:
    """Keys's kernel with a = -0.5, as antialiasing has it."""
    d = distance.abs()
    near = (1.5 * d - 2.5) * d * d + 1
    far = ((-0.5 * d + 2.5) * d - 4) * d + 2
    return torch.where(d < 1, near, torch.where(d < 2, far, torch.zeros_like(d)))


def _antialiased(kernel: Any) -> Any:
    """Each axis is a product with a matrix: [out, in], rows of `kernel` as wide as the step, with a sum of 1."""

    def resize(
        x: Tensor, size: Sequence[int] | None, align_corners: bool, scales: Sequence[float] | None = None
    ) -> Tensor:
        sizes, steps = _sizes(x, size, scales)
        for dim, (out, step) in enumerate(zip(sizes, steps, strict=True), 2):
            extent = x.shape[dim]
            if align_corners:
                step = (extent - 1) / (out - 1) if out > 1 else 0.0
            centres = torch.arange(out, dtype=torch.float32) * step
            centres = centres if align_corners else centres + 0.5 * step - 0.5
            weights = kernel((torch.arange(extent, dtype=torch.float32)[None, :] - centres[:, None]) / max(step, 1.0))
            weights = (weights / weights.sum(1, keepdim=True)).to(x.dtype)
            x = torch.matmul(x, weights.t()) if dim == 3 else torch.matmul(weights, x)
        return x

    return resize


RULES = {
    aten.upsample_nearest2d.vec: _nearest,
    aten.upsample_bilinear2d.vec: _bilinear,
    aten._upsample_bilinear2d_aa.vec: _antialiased(_triangle),
    aten._upsample_bicubic2d_aa.vec: _antialiased(_cubic),
}
