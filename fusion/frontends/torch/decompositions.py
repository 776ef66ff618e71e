"""Operators of ATen as others that are translated rightly: torch's own decompositions, and those of this folder.

A rule returns `NotImplemented` for the forms of its operator that need none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table

from fusion.frontends.torch import attention, elementwise, indexing, pooling, reductions, resampling

aten = torch.ops.aten
Rule = Callable[..., Any]

# torch has these beyond the core set, and TVM's importer translates them wrongly.
_TORCHS = (aten.grid_sampler_2d.default,)
# What `index_select` becomes in the core set is what it is needed for here; what `matmul` does joins its batches.
_KEPT = (aten.index_select.default, aten.matmul.default)


@functools.cache
def decompositions() -> dict[Any, Rule]:
    """Return what `ExportedProgram.run_decompositions` is to apply."""
    table: dict[Any, Rule] = dict(torch.export.default_decompositions())
    table.update({op: decomposition_table[op] for op in _TORCHS})
    for family in (attention, elementwise, indexing, pooling, reductions, resampling):
        table.update(family.RULES)
    for op in _KEPT:
        table.pop(op, None)
    return table
