"""Stages of a pipeline: the graph's order cut into one run a device, the best cuts there are.

Least period first, by dynamic programming over the places of cuts; then, of all cuts whose period is within `slack` of
it, those over which the fewest bytes go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from fusion.declined import Declined
from placement.methods.method import FoundPlan
from placement.problem import THROUGHPUT, PlacementProblem
from placement.simulate import schedule_stream

_MOST_DEVICES = 4
"""Of more, those that do all in the least time come first."""
_MOST_TASKS = 2000
"""The program looks at all pairs of them."""


@dataclass(frozen=True)
class ContiguousStages:
    """The graph's order cut into at most as many runs as there are devices.

    Attributes:
        slack: Part by which the busiest device may do more than it must, where fewer bytes are sent then.
    """

    slack: float = 0.01
    name: str = "contiguous stages"

    def find(self, problem: PlacementProblem, objective: str) -> FoundPlan:
        """Return the best over the orders of the devices, and over how many of them are used.

        Raises:
            Declined: The objective is not throughput, the graph is too large, or the memories are too small for runs.
        """
        if objective != THROUGHPUT or not 0 < len(problem.tasks) <= _MOST_TASKS:
            raise Declined("stages are for streams of requests, and for graphs of 1 to 2000 tasks")
        cuts = (_cut(problem, order, self.slack) for order in _orders(problem))
        plans = [schedule_stream(problem, placement) for placement in cuts if placement]
        if not plans:
            raise Declined("the memories are too small for runs of the graph")
        return FoundPlan(min(plans, key=lambda plan: (plan.period, plan.latency)))


def _orders(problem: PlacementProblem) -> Iterator[Sequence[int]]:
    """Yield sets of devices in order; of devices that are alike, also in memory, only one order."""
    if len(problem.devices) > _MOST_DEVICES:
        yield sorted(problem.devices, key=lambda k: sum(seconds[k] for seconds in problem.seconds))
        return
    seen = set[tuple[tuple[float, ...], ...]]()
    for count in range(1, len(problem.devices) + 1):
        for order in permutations(problem.devices, count):
            kinds = tuple((problem.room[k], *(seconds[k] for seconds in problem.seconds)) for k in order)
            if kinds not in seen:
                seen.add(kinds)
                yield order


def _cut(problem: PlacementProblem, order: Sequence[int], slack: float) -> list[int]:
    """Return the device of each task, `order` telling whose the runs are; no run is empty. Nothing where none fit."""
    tasks, count = len(problem.tasks), min(len(order), len(problem.tasks))
    sums = np.vstack([np.zeros(len(problem.devices)), np.cumsum(np.array(problem.seconds), axis=0)])
    kept = np.concatenate([[0.0], np.cumsum(problem.memory)])
    sizes, empty = kept[None, :] - kept[:, None], np.tri(tasks + 1, dtype=bool)
    runs = [
        np.where(empty | (sizes > problem.room[k]), np.inf, sums[None, :, k] - sums[:, None, k]) for k in order[:count]
    ]
    least = np.full(tasks + 1, np.inf)
    least[0] = 0.0
    for run in runs:
        least = np.maximum(run, least[:, None]).min(axis=0)
    if np.isinf(least[-1]):
        return []
    limit, crossing, sent = least[-1] * (1 + slack), _crossing(problem), np.full(tasks + 1, np.inf)
    sent[0], choices = 0.0, list[np.ndarray]()
    for run in runs:
        totals = np.where(run <= limit, (sent + crossing)[:, None], np.inf)
        choices.append(totals.argmin(axis=0))
        sent = totals.min(axis=0)
    placement, end = [0] * tasks, tasks
    for k, choice in zip(reversed(order[:count]), reversed(choices), strict=True):
        start = int(choice[end])
        placement[start:end] = [k] * (end - start)
        end = start
    return placement


def _crossing(problem: PlacementProblem) -> np.ndarray:
    """Return the bytes that go over a cut before each task, and behind the last."""
    found = np.zeros(len(problem.tasks) + 1)
    for task, consumers in enumerate(problem.consumers):
        if consumers:
            found[task + 1 : max(consumer for consumer, _ in consumers) + 1] += problem.sent[task]
    return found
