"""Each task, in the order of the graph, where it is best at that moment."""

from __future__ import annotations

from dataclasses import dataclass

from placement.loads import StreamLoads
from placement.memory_book import MemoryBook
from placement.methods.method import FoundPlan
from placement.problem import LATENCY, PlacementProblem
from placement.simulate import schedule


@dataclass(frozen=True)
class Greedy:
    """For latency the device on which a task ends first, for throughput the one that keeps the period shortest."""

    name: str = "greedy"

    def find(self, problem: PlacementProblem, objective: str) -> FoundPlan:
        """Return the plan.

        Raises:
            Declined: Earlier choices leave no room for a task.
        """
        placement = _first_end(problem) if objective == LATENCY else _least_load(problem)
        return FoundPlan(schedule(problem, objective, placement))


def _first_end(problem: PlacementProblem) -> list[int]:
    book, placement, ends = MemoryBook(problem), list[int](), list[float]()
    free = [0.0] * len(problem.devices)
    for task in problem.tasks:
        end, device = min(
            (max([free[k], *arrivals(problem, task, k, placement, ends)]) + problem.seconds[task][k], k)
            for k in book.devices_for(task, problem)
        )
        placement.append(device)
        ends.append(end)
        free[device] = end
        book.take(task, device)
    return placement


def arrivals(
    problem: PlacementProblem, task: int, device: int, placement: list[int], ends: list[float]
) -> list[float]:
    """Return when what `task` reads is on `device`, where all that it reads is placed."""
    return [
        ends[producer] + problem.copy_seconds(size, placement[producer], device)
        for producer, size in problem.producers[task]
    ]


def _least_load(problem: PlacementProblem) -> list[int]:
    book, loads = MemoryBook(problem), StreamLoads(problem)
    for task in problem.tasks:
        choices = []
        for device in book.devices_for(task, problem):
            loads.put(task, device)
            choices.append((loads.period, problem.seconds[task][device], device))
            loads.remove(task)
        *_, device = min(choices)
        loads.put(task, device)
        book.take(task, device)
    return list(loads.placement)
