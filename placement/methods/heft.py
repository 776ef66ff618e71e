"""List scheduling by ranks: HEFT and PEFT."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass

import numpy as np

from placement.bounds import tails
from placement.memory_book import MemoryBook
from placement.methods.greedy import arrivals
from placement.methods.method import FoundPlan
from placement.plan import DevicePlan
from placement.problem import LATENCY, PlacementProblem
from placement.ready_order import ready_order
from placement.simulate import schedule, schedule_once


@dataclass(frozen=True)
class Heft:
    """Heterogeneous earliest finish time (Topcuoglu, Hariri, Wu 2002), with insertion.

    Attributes:
        lookahead: Whether the optimistic cost of what follows is added, as PEFT does (Arabnejad, Barbosa 2014).
    """

    lookahead: bool = False

    @property
    def name(self) -> str:
        """As in the papers."""
        return "PEFT" if self.lookahead else "HEFT"

    def find(self, problem: PlacementProblem, objective: str) -> FoundPlan:
        """Return the plan; for throughput, the placement is that for latency.

        Raises:
            Declined: Earlier choices leave no room for a task.
        """
        rest = tails(problem) if self.lookahead else np.zeros((len(problem.tasks), len(problem.devices)))
        ranks = rest.mean(axis=1) if self.lookahead else upward_ranks(problem)
        plan = _list_schedule(problem, ranks, rest)
        return FoundPlan(plan if objective == LATENCY else schedule(problem, objective, plan.placement))


def upward_ranks(problem: PlacementProblem) -> np.ndarray:
    """Return for each task the longest path to the end, each task and copy with its mean time over all devices,
    as a part of the longest of all."""
    seconds = np.array(problem.seconds)
    mean = np.where(np.isfinite(seconds), seconds, np.nan)
    tasks: np.ndarray = np.nanmean(mean, axis=1)
    pairs = max(len(problem.devices) * (len(problem.devices) - 1), 1)
    latency, per_byte = (float(np.sum(matrix)) / pairs for matrix in (problem.latency, problem.per_byte))
    ranks = np.zeros(len(problem.tasks))
    for task in reversed(problem.tasks):
        after = (latency + size * per_byte + ranks[consumer] for consumer, size in problem.consumers[task])
        ranks[task] = tasks[task] + max(after, default=0.0)
    # What is equal but for the order of sums is a tie, which the order of the graph decides.
    rounded: np.ndarray = np.round(ranks / max(ranks.max(initial=0.0), 1e-300), 12)
    return rounded


def _list_schedule(problem: PlacementProblem, ranks: np.ndarray, rest: np.ndarray) -> DevicePlan:
    """Return the plan in which the tasks, by falling ranks, take the gap where end and `rest` are least."""
    count = len(problem.tasks)
    book, placement = MemoryBook(problem), [0] * count
    ends, starts, added = [0.0] * count, [0.0] * count, rest.tolist()
    gaps = [_Gaps() for _ in problem.devices]
    for task in ready_order(problem, (-ranks).tolist()):
        choices = []
        for device in book.devices_for(task, problem):
            seconds = problem.seconds[task][device]
            start = gaps[device].first(max(arrivals(problem, task, device, placement, ends), default=0.0), seconds)
            choices.append((start + seconds + added[task][device], start, device))
        _, start, device = min(choices)
        placement[task], starts[task], ends[task] = device, start, start + problem.seconds[task][device]
        gaps[device].fill(start, ends[task])
        book.take(task, device)
    return schedule_once(problem, placement, ready_order(problem, starts))


class _Gaps:
    """The times at which a device has nothing to do."""

    def __init__(self) -> None:
        self._starts, self._ends = [0.0], [float("inf")]

    def first(self, ready: float, seconds: float) -> float:
        """Return the first time from `ready` at which it is free for so long."""
        for index in range(bisect_right(self._ends, ready), len(self._starts)):
            start = max(self._starts[index], ready)
            if start + seconds <= self._ends[index]:
                return start
        return max(self._starts[-1], ready)

    def fill(self, start: float, end: float) -> None:
        """Let it be busy from `start` to `end`."""
        if end == start:
            return
        index = min(bisect_right(self._starts, start) - 1, len(self._starts) - 1)
        before, after = self._starts[index], self._ends[index]
        del self._starts[index], self._ends[index]
        for left, right in ((before, start), (end, after)):
            if right > left:
                insort(self._starts, left)
                insort(self._ends, right)
