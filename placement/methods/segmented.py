"""The shortest path over a graph's segments, each with every placement of its tasks, or with the few that are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fusion.declined import Declined
from placement.check import why_not_valid
from placement.methods.heft import upward_ranks
from placement.methods.method import FoundPlan
from placement.plan import DevicePlan
from placement.problem import LATENCY, PlacementProblem
from placement.ready_order import ready_order
from placement.segments import Segment, segments_of
from placement.simulate import schedule_once

_MOST = 30_000
"""Placements of a segment that are all tried: nine tasks on three devices, with that of its entry."""
_MOST_VISITS = 4_000_000
"""Tasks times placements of a segment: about 2e-7 s each. One of 10,000 tasks on 16 devices has 56 million."""


@dataclass(frozen=True)
class SegmentedPlan:
    """Plans a segment after the other, for each device that the one before may end on.

    Where a segment has too many placements, those are tried that leave all of it on one device, and those of the known
    plans.
    """

    known: Sequence[DevicePlan] = field(default=())
    name: str = "segments"

    def find(self, problem: PlacementProblem, objective: str) -> FoundPlan:
        """Return the best plan of both orders, that of the graph and that of HEFT's ranks.

        Raises:
            Declined: The objective is not latency, the graph is one segment or has one that is too large, or the plan
                does not fit the memories.
        """
        segments = segments_of(problem)
        if objective != LATENCY or len(segments) < 2:
            raise Declined("segments are for single requests, and for graphs with a task that all others wait for")
        orders = list(problem.tasks), ready_order(problem, (-upward_ranks(problem)).tolist())
        plans = [schedule_once(problem, self._path(problem, segments, order), order) for order in orders]
        best = min(plans, key=lambda plan: plan.latency)
        if reason := why_not_valid(problem, best):
            raise Declined(reason)
        return FoundPlan(best)

    def _path(self, problem: PlacementProblem, segments: Sequence[Segment], order: Sequence[int]) -> list[int]:
        """Return the placement on the shortest path, tasks of a segment being in `order`."""
        place = {task: at for at, task in enumerate(order)}
        before, steps = np.zeros(len(problem.devices)), list[tuple[np.ndarray, np.ndarray]]()
        for segment in segments:
            tasks = sorted(segment.tasks(problem), key=place.__getitem__)
            rows = self._placements(problem, segment, tasks)
            ends = _ends(problem, segment, tasks, rows, before)
            has_end = segment.exit < len(problem.tasks)
            best = np.array([
                np.where(rows[:, -1] == k, ends, np.inf).argmin() if has_end else ends.argmin() for k in problem.devices
            ])  # fmt: skip
            steps.append((np.array(tasks), rows[best]))
            before = ends[best]
            if has_end:
                before = np.where(rows[best, -1] == np.array(problem.devices), before, np.inf)
        placement, device = [0] * len(problem.tasks), int(before.argmin())
        for tasks, rows in reversed(steps):
            for task, each in zip(tasks.tolist(), rows[device, 1:].tolist(), strict=True):
                placement[task] = each
            device = int(rows[device, 0])
        return placement

    def _placements(self, problem: PlacementProblem, segment: Segment, tasks: Sequence[int]) -> np.ndarray:
        """Return devices of the entry and of `tasks`, a row for each way to place them."""
        devices = len(problem.devices)
        size = len(tasks) + 1
        if devices**size <= _MOST:
            every: np.ndarray = np.indices((devices,) * size, dtype=np.intp).reshape(size, -1).T
            return every
        if devices**2 * (devices + len(self.known)) * len(tasks) > _MOST_VISITS:
            raise Declined(f"a segment has {len(tasks)} tasks, too many for {devices} devices")
        ends = np.indices((devices, devices), dtype=np.intp).reshape(2, -1).T
        return np.vstack([
            np.column_stack([ends[:, :1], np.tile(inner, (len(ends), 1)), ends[:, 1:]])
            for inner in self._inner(problem, tasks)
        ])  # fmt: skip

    def _inner(self, problem: PlacementProblem, tasks: Sequence[int]) -> Iterator[list[int]]:
        for device in problem.devices:
            yield [device] * (len(tasks) - 1)
        for plan in self.known:
            yield [plan.placement[task] for task in tasks[:-1]]


def _ends(
    problem: PlacementProblem, segment: Segment, tasks: Sequence[int], rows: np.ndarray, before: np.ndarray
) -> np.ndarray:
    """Return for each placement when the last of `tasks` ends, which each device runs in this order, if the entry ends
    at `before` of its device."""
    latency, per_byte, seconds = map(np.array, (problem.latency, problem.per_byte, problem.seconds))
    entry, every = rows[:, 0], np.arange(len(rows))
    column = {task: at for at, task in enumerate(tasks, 1)} | {segment.entry: 0}
    begin = before[entry] if segment.entry >= 0 else np.zeros(len(rows))
    free = np.repeat(begin[:, None], len(problem.devices), axis=1)
    ends = {segment.entry: begin}
    for task in tasks:
        device = rows[:, column[task]]
        start = free[every, device]
        for producer, size in problem.producers[task]:
            source = rows[:, column[producer]]
            copied = latency[source, device] + size * per_byte[source, device]  # 0 where the result stays
            start = np.maximum(start, ends[producer] + copied)
        free[every, device] = ends[task] = start + seconds[task, device]
    found: np.ndarray = free.max(axis=1)
    return found
