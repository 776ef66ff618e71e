"""Operators of ATen as others that are translated rightly: torch's own decompositions, and those of this folder.

A rule returns `NotImplemented` for the forms of its operator that need none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from fusion.frontends.torch import (
    attention,
    complex_numbers,
    composite_operators,
    elementwise,
    experts,
    fourier,
    indexing,
    linear_algebra,
    pool_indices,
    pooling,
    quantization,
    recurrent,
    reductions,
    resampling,
)

aten = torch.ops.aten
Rule = Callable[..., Any]

_FAMILIES = (
    attention, complex_numbers, elementwise, fourier, indexing, linear_algebra, pool_indices, pooling, reductions,
    resampling,
)  # fmt: skip
# What `index_select` becomes in the core set is what it is needed for here; what `matmul` does joins its batches.
_KEPT = (aten.index_select.default, aten.matmul.default)


def decompositions() -> dict[Any, Rule]:
    """Return what `ExportedProgram.run_decompositions` is to apply."""
    table = _of_torch()
    for family in (experts, quantization):  # packages are imported, and their operators there, at any time
        table.update(family.rules())
    return table


@functools.cache
def _of_torch() -> dict[Any, Rule]:
    composite_operators.install()
    table: dict[Any, Rule] = dict(torch.export.default_decompositions())
    for family in _FAMILIES:
        table.update(family.RULES)
    table.update({op: recurrent.written_out(table[op]) for op in recurrent.OPERATORS})
    for op in _KEPT:
        table.pop(op, None)
    return table
