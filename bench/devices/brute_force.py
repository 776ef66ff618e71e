"""The best plan of a small problem by trying all, sharing nothing with the planners but the problem."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from placement.problem import LATENCY, PlacementProblem


def best_seconds(problem: PlacementProblem, objective: str) -> float:
    """Return the least latency or period; infinity where no placement fits the memories."""
    if objective == LATENCY:
        search = _Orders(problem)
        search.extend([])
        return search.best
    periods = _Placements(problem)
    periods.extend([])
    return periods.best


@dataclass
class _Orders:
    """Tries every task that may start next on every device.

    Every schedule is one that starts tasks in the order of their starts, each as soon as its device and data are there.
    """

    problem: PlacementProblem
    best: float = math.inf
    _placement: dict[int, int] = field(default_factory=dict, init=False)
    _end: dict[int, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._after: dict[int, float] = {}
        for task in reversed(self.problem.tasks):
            rest = (self._after[other] + min(self.problem.seconds[other]) for other, _ in self.problem.consumers[task])
            self._after[task] = max(rest, default=0.0)

    def extend(self, order: list[tuple[float, int]]) -> None:
        """Try all that may follow `order`: starts and tasks."""
        problem = self.problem
        if len(order) == len(problem.tasks):
            self.best = min(self.best, max(self._end.values(), default=0.0))
            return
        for task in problem.tasks:
            if task in self._end or any(producer not in self._end for producer, _ in problem.producers[task]):
                continue
            for device in problem.devices:
                self._try(order, task, device)

    def _try(self, order: list[tuple[float, int]], task: int, device: int) -> None:
        problem = self.problem
        there = [other for other, where in self._placement.items() if where == device]
        if sum(problem.memory[other] for other in [*there, task]) > problem.room[device]:
            return
        ready = [
            self._end[other] + (problem.copy_seconds(size, self._placement[other], device)
                                if self._placement[other] != device else 0.0)
            for other, size in problem.producers[task]
        ]  # fmt: skip
        start = max([0.0, *ready, *(self._end[other] for other in there)])
        end = start + problem.seconds[task][device]
        if (order and (start, task) < order[-1]) or end + self._after[task] >= self.best:
            return
        self._placement[task], self._end[task] = device, end
        self.extend([*order, (start, task)])
        del self._placement[task], self._end[task]


@dataclass
class _Placements:
    """Tries every device for every task."""

    problem: PlacementProblem
    best: float = math.inf

    def extend(self, placement: list[int]) -> None:
        """Try all that may follow `placement`."""
        if self._period(placement) >= self.best:
            return
        if len(placement) == len(self.problem.tasks):
            self.best = self._period(placement)
            return
        for device in self.problem.devices:
            self.extend([*placement, device])

    def _period(self, placement: list[int]) -> float:
        """Return the period of the tasks that are placed; infinity where they do not fit."""
        problem = self.problem
        work, kept = [0.0] * len(problem.devices), [0.0] * len(problem.devices)
        sent: dict[tuple[int, int], set[int]] = {}
        for task, device in enumerate(placement):
            work[device] += problem.seconds[task][device]
            kept[device] += problem.memory[task]
            for other, _ in problem.producers[task]:
                if placement[other] != device:
                    sent.setdefault((placement[other], device), set()).add(other)
        if any(size > room for size, room in zip(kept, problem.room, strict=True)):
            return math.inf
        copies = [
            sum(problem.copy_seconds(problem.sent[task], *link) for task in tasks) for link, tasks in sent.items()
        ]
        return max([*work, *copies])
