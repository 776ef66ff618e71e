"""What was measured of where a model runs, as plain data that a saved module keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PartTimes:
    """What one part of a model takes in seconds a run: None where that was not measured.

    Attributes:
        seconds: Where it runs.
        runner_up: The backend that would be fastest of all others; "" where none was measured.
        runner_up_seconds: There.
    """

    seconds: float | None = None
    runner_up: str = ""
    runner_up_seconds: float | None = None


@dataclass(frozen=True)
class PlacementTimes:
    """What was measured of one form of a model.

    Attributes:
        seconds: The whole of it, as it is placed; None where no placement was measured.
        all_cpu_seconds: With our own kernels alone, beside that.
        parts: Of parts of it, by the names of kernels and the keys of subgraphs.
    """

    seconds: float | None = None
    all_cpu_seconds: float | None = None
    parts: Mapping[str, PartTimes] = field(default_factory=dict)
