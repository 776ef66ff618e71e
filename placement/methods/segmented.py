"""The shortest path over a graph's segments, each with every placement of its tasks, or with the few that are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fusion.declined import Declined
from placement.bounds import segment_bounds
from placement.check import why_not_valid
from placement.methods.heft import upward_ranks
from placement.methods.method import FoundPlan
from placement.methods.segment_path import PathSegment, SegmentPath
from placement.methods.segment_placements import SegmentPlacements
from placement.plan import DevicePlan
from placement.problem import LATENCY, PlacementProblem
from placement.ready_order import ready_order
from placement.segments import Segment, segment_problem, segments_of
from placement.tasks import TaskGraph

_MOST = 30_000
"""Placements of a segment that are all tried: nine tasks on three devices, with that of its entry."""
_MOST_VISITS = 4_000_000
"""Tasks times placements of a segment: about 2e-7 s each. One of 10,000 tasks on 16 devices has 56 million."""


@dataclass(frozen=True)
class SegmentedPlan:
    """Plans each segment for each two devices that it may begin and end on.

    Of a small segment all placements are tried in two orders, and those in all orders that may be part of a better plan
    by what no order is below: the plan is then the best there is. Of others those placements are tried that leave all
    of a segment on one device, and those of the known plans.
    """

    known: Sequence[DevicePlan] = field(default=())
    name: str = "segments"

    def find(self, problem: PlacementProblem, objective: str) -> FoundPlan:
        """Return the plan, and what no plan is below.

        Raises:
            Declined: The objective is not latency, the graph is one segment or has one that is too large, or the plan
                does not fit the memories.
        """
        segments = segments_of(problem)
        if objective != LATENCY or len(segments) < 2:
            raise Declined("segments are for single requests, and for graphs with a task that all others wait for")
        path = SegmentPath(problem, self._parts(problem, segments))
        path.improve(min((plan.latency for plan in self.known), default=np.inf))
        plan = path.shortest()
        if reason := why_not_valid(problem, plan):
            raise Declined(reason)
        return FoundPlan(plan, min(path.bound(), plan.latency))

    def _parts(self, problem: PlacementProblem, segments: Sequence[Segment]) -> list[PathSegment]:
        """Return the segments, with their placements in the order of the graph and in that of HEFT."""
        devices, ranks = len(problem.devices), -upward_ranks(problem)
        alike, parts = dict[tuple[bool, bool, TaskGraph], SegmentPlacements](), list[PathSegment]()
        for segment in segments:
            tasks, part = segment.tasks(problem), segment_problem(problem, segment)
            ends = segment.entry >= 0, segment.exit < len(problem.tasks)
            ranked = ready_order(part, ranks[tasks.start - ends[0] : tasks.stop].tolist())
            if devices ** (len(tasks) + 1) > _MOST:
                placements = SegmentPlacements(part, *ends, self._known_rows(problem, tasks))
                placements.try_orders(part.tasks, ranked)
                lowest = np.broadcast_to(segment_bounds(problem, segment), (devices, devices))
                parts.append(PathSegment(segment, placements, lowest))
                continue
            kind = (*ends, replace(part.graph, tasks=tuple(replace(task, name="") for task in part.graph.tasks)))
            if kind not in alike:
                alike[kind] = SegmentPlacements(part, *ends, _all_rows(devices, len(tasks) + 1))
                alike[kind].try_orders(part.tasks, ranked)
            parts.append(PathSegment(segment, alike[kind]))
        return parts

    def _known_rows(self, problem: PlacementProblem, tasks: Sequence[int]) -> np.ndarray:
        devices = len(problem.devices)
        if devices**2 * (devices + len(self.known)) * len(tasks) > _MOST_VISITS:
            raise Declined(f"a segment has {len(tasks)} tasks, too many for {devices} devices")
        ends = _all_rows(devices, 2)
        return np.vstack([
            np.column_stack([ends[:, :1], np.tile(inner, (len(ends), 1)), ends[:, 1:]])
            for inner in self._inner(problem, tasks)
        ])  # fmt: skip

    def _inner(self, problem: PlacementProblem, tasks: Sequence[int]) -> Iterator[list[int]]:
        for device in problem.devices:
            yield [device] * (len(tasks) - 1)
        for plan in self.known:
            yield [plan.placement[task] for task in tasks[:-1]]


def _all_rows(devices: int, size: int) -> np.ndarray:
    found: np.ndarray = np.arange(devices**size)[:, None] // devices ** np.arange(size)[::-1] % devices
    return found
