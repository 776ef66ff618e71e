"""A plan: where each task runs, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PlannedCopy:
    """A task's result on its way to another device.

    Attributes:
        task: Whose result it is.
        source, target: Devices.
        start, seconds: When, and how long.
    """

    task: int
    source: int
    target: int
    start: float
    seconds: float


@dataclass(frozen=True)
class DevicePlan:
    """Where and when tasks run.

    Attributes:
        objective: What it was made for.
        placement: The device of each task.
        starts: When each task of the first request starts, in seconds.
        copies: Those of the first request.
        latency: Seconds from a request to its answer.
        period: Seconds from one request of a stream to the next; everything of the next request happens this much
            later. For a plan of one request, its latency.
    """

    objective: str
    placement: tuple[int, ...]
    starts: tuple[float, ...]
    copies: tuple[PlannedCopy, ...]
    latency: float
    period: float

    @property
    def seconds(self) -> float:
        """What the plan is judged by: the less, the better."""
        return self.period

    @property
    def order(self) -> Sequence[int]:
        """The tasks as they start."""
        return sorted(range(len(self.starts)), key=lambda task: (self.starts[task], task))
