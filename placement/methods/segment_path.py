"""The shortest path over segments by the placements that are tried of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placement.methods.segment_placements import SegmentPlacements
from placement.plan import DevicePlan
from placement.problem import PlacementProblem
from placement.segments import Segment, shortest_ends
from placement.simulate import schedule_once

_LESS = 1 - 1e-9
"""Part of a time that is less than it by more than rounding."""


@dataclass(frozen=True)
class PathSegment:
    """A segment of a problem.

    Attributes:
        segment: Which.
        placements: Those that are tried; alike segments have the same.
        lowest: Where these are not all that there are, times that no placement is below, from the device of the entry
            (row) to that of the end.
    """

    segment: Segment
    placements: SegmentPlacements
    lowest: np.ndarray | None = None


@dataclass(frozen=True)
class SegmentPath:
    """The segments of a problem, in order."""

    problem: PlacementProblem
    parts: Sequence[PathSegment]

    def improve(self, known: float) -> None:
        """Try all orders of the placements that may be part of a plan below `known` and below the shortest path."""
        for step in (SegmentPlacements.bound, SegmentPlacements.try_all_orders):
            limit = min(known, float(self._ends()[-1].min())) * _LESS
            lowest = self._lowest()
            behind = shortest_ends(lowest)
            ahead = shortest_ends([each.T for each in reversed(lowest)])[::-1]
            for part, before, after in zip(self.parts, behind[:-1], ahead[1:], strict=True):
                tried = part.placements
                least = before[tried.rows[:, 0]] + tried.lowest + after[tried.rows[:, -1]]
                is_open = (least < limit) & (tried.lowest < tried.lengths * _LESS)
                if part.lowest is None and is_open.any():
                    step(tried, is_open.nonzero()[0])

    def bound(self) -> float:
        """Return seconds that no plan is below."""
        return float(shortest_ends(self._lowest())[-1].min())

    def shortest(self) -> DevicePlan:
        """Return the plan on the shortest path."""
        ends = self._ends()
        device = int(ends[-1].argmin())
        placement, order = [0] * len(self.problem.tasks), list[int]()
        for part, before in zip(reversed(self.parts), reversed(ends[:-1]), strict=True):
            tried, tasks = part.placements, part.segment.tasks(self.problem)
            entry = int((before + tried.between(tried.lengths)[:, device]).argmin())
            devices, best = tried.best(entry, device)
            placement[tasks.start : tasks.stop] = devices.tolist()
            order = [*(task - tried.tasks.start + tasks.start for task in best), *order]
            device = entry
        return schedule_once(self.problem, placement, order)

    def _ends(self) -> list[np.ndarray]:
        return shortest_ends([part.placements.between(part.placements.lengths) for part in self.parts])

    def _lowest(self) -> list[np.ndarray]:
        return [
            part.placements.between(part.placements.lowest) if part.lowest is None else part.lowest
            for part in self.parts
        ]
