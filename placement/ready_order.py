"""Orders of a graph's tasks."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from placement.problem import PlacementProblem


def ready_order(problem: PlacementProblem, keys: Sequence[float]) -> list[int]:
    """Return the tasks, each behind all that it reads: of those that may be next, always the one with the least key."""
    waiting = [len(producers) for producers in problem.producers]
    ready = [(keys[task], task) for task in problem.tasks if not waiting[task]]
    heapify(ready)
    order = []
    while ready:
        _, task = heappop(ready)
        order.append(task)
        for consumer, _ in problem.consumers[task]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                heappush(ready, (keys[consumer], consumer))
    return order
