"""Decompositions of what torch and transformers write a layer of experts with: counts of the rows of each, and a
product whose rows are in order of their experts, each by the weights of its own.

    grouped_mm(x [rows, k], weights [experts, k, n], ends [experts])    rows ends[e - 1] .. ends[e] by weights[e]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

_MULTIPLIED_AT_ONCE = 78
"""How many multiply-adds cost what it costs to bring one weight of a row to its product: each is read, written and
read again. 12 bytes at 10 GB/s, two operations at 130 GFLOP/s (two cores of Zen 3)."""
_ROWS_OF_A_READ = 26
"""Rows whose multiply-adds by one weight cost as much as reading it once."""


def _histogram(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Counts of the values in `bins` intervals of one width from `min` to `max`, which the last one includes."""
    if min >= max:
        return NotImplemented
    values = x.flatten()
    places = ((values - min) * bins / (max - min)).to(torch.int64).clamp(0, bins - 1)
    counted = (values >= min) & (values <= max)
    return torch.zeros(bins, dtype=x.dtype).index_add(0, places, counted.to(x.dtype))


def _grouped_mm(
    x: Tensor,
    weights: Tensor,
    ends: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """The product of rows by the weights of the group that each is in; 0 behind the last group.

    Few rows bring the weights of each; more are multiplied by those of all experts, of which each keeps its own.
    """
    if ends is None or bias is not None or x.ndim != 2 or weights.ndim != 3:
        return NotImplemented
    rows, (experts, _, columns) = x.shape[0], weights.shape
    behind = torch.arange(rows).unsqueeze(1) >= ends.unsqueeze(0)
    group = behind.sum(1)
    own = group.clamp(max=experts - 1)
    if isinstance(rows, int) and experts * (rows + _ROWS_OF_A_READ) > _MULTIPLIED_AT_ONCE * rows:
        made = torch.bmm(x.unsqueeze(1), weights.index_select(0, own)).squeeze(1)
    else:
        all_of_them = x @ weights.permute(1, 0, 2).reshape(-1, experts * columns)
        place = own.reshape(-1, 1, 1).expand(-1, 1, columns)
        made = all_of_them.reshape(-1, experts, columns).gather(1, place).squeeze(1)
    made = torch.where((group < experts).unsqueeze(1), made, 0)
    return made if out_dtype is None else made.to(out_dtype)


def rules() -> dict[Any, Callable[..., Any]]:
    """Return the rules: those of transformers' own operator too, where that package is imported."""
    made: dict[Any, Callable[..., Any]] = {
        aten.histc.default: _histogram,
        aten._grouped_mm.default: _grouped_mm,
    }
    if hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        made[torch.ops.transformers.grouped_mm_fallback.default] = _grouped_mm
    return made
