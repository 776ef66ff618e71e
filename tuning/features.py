"""What a cost model is told of a point of a kernel's space: numbers by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log2, prod

from backends.tensorir.space import Point
from tuning.known import KnownKernel

Features = Mapping[str, float]

_TENSORS = 3
"""Of the parameters that are read; others are seldom."""


def features_of(kernel: KnownKernel, points: Iterable[Point]) -> list[Features]:
    """Return the features of `points`: the axes, what the family tells, the estimate, and sizes of tensors. Sizes are
    logarithms: what doubles a tensor of any size is the same step."""
    space = kernel.choices.space
    tensors = _tensor_features(kernel)
    default = space.default.cycles
    return [
        {
            **tensors,
            **{f"axis {name}": log2(1 + value) for name, value in point.axes().items()},
            **space.features(point),
            "estimate": log2(max(point.cycles, 1.0)),
            "over the default": log2(max(point.cycles, 1.0) / max(default, 1.0)),
        }
        for point in points
    ]


def _tensor_features(kernel: KnownKernel) -> Features:
    *read, made = kernel.task.tensors
    named = {"made": made, **{f"read {place}": tensor for place, tensor in enumerate(read[:_TENSORS])}}
    found: dict[str, float] = {"tensors": len(kernel.task.tensors)}
    for name, (_, shape) in named.items():
        found[f"{name}: elements"] = log2(max(prod(shape), 1))
        found[f"{name}: last axis"] = log2(max(shape[-1] if shape else 1, 1))
    return found
