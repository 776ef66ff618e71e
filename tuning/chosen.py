"""What tuning tells the rest of a compilation, which imports nothing else of it unless it measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from backends.tensorir.space import Point


@dataclass(frozen=True)
class Chosen:
    """What was measured.

    Attributes:
        points: Of the kernels, by name, that are faster at another point than the default.
        seconds: Of a call of each kernel at the point that it gets, where that was measured.
        notes: What to say of it, one sentence each.
    """

    points: Mapping[str, Point] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
