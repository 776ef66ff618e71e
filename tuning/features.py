"""What a cost model is told of a point of a kernel's space: numbers by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log2, prod
from typing import Any

from backends.tensorir.space import Point, Space
from tuning.task import Tensors

Features = Mapping[str, float]

_TENSORS = 3
"""Of the parameters that are read; others are seldom."""


def features_of(space: Space[Any], tensors: Tensors, points: Iterable[Point]) -> list[Features]:
    """Return the features of `points` of a kernel with these parameters: the axes, what the family tells, the estimate,
    and sizes of tensors. Sizes are logarithms: what doubles a tensor of any size is the same step."""
    of_tensors = _tensor_features(tensors)
    default = space.default.cycles
    return [
        {
            **of_tensors,
            **{f"axis {name}": log2(1 + value) for name, value in point.axes().items()},
            **space.features(point),
            "estimate": log2(max(point.cycles, 1.0)),
            "over the default": log2(max(point.cycles, 1.0) / max(default, 1.0)),
        }
        for point in points
    ]


def _tensor_features(tensors: Tensors) -> Features:
    *read, made = tensors
    named = {"made": made, **{f"read {place}": tensor for place, tensor in enumerate(read[:_TENSORS])}}
    found: dict[str, float] = {"tensors": len(tensors)}
    for name, (_, shape) in named.items():
        found[f"{name}: elements"] = log2(max(prod(shape), 1))
        found[f"{name}: last axis"] = log2(max(shape[-1] if shape else 1, 1))
    return found
