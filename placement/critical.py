"""Which tasks a plan's latency hangs on."""

from __future__ import annotations

from placement.plan import DevicePlan
from placement.problem import PlacementProblem


def critical_tasks(problem: PlacementProblem, plan: DevicePlan) -> list[int]:
    """Return a chain of tasks, the last first, of which each starts when the next one's result is there or its device
    is free of it: to be faster, a plan must change one of them."""
    placement, starts = plan.placement, plan.starts
    ends = [start + problem.seconds[task][placement[task]] for task, start in enumerate(starts)]
    latest: dict[int, int] = {}
    previous: dict[int, int] = {}
    for task in plan.order:
        if placement[task] in latest:
            previous[task] = latest[placement[task]]
        latest[placement[task]] = task
    task = max(problem.tasks, key=lambda each: ends[each])
    chain = [task]
    while True:
        waits = [(ends[previous[task]], previous[task])] if task in previous else []
        waits += [
            (ends[other] + problem.copy_seconds(size, placement[other], placement[task]), other)
            for other, size in problem.producers[task]
        ]
        if not waits or max(waits)[0] <= 0.0:
            return chain
        task = max(waits)[1]
        chain.append(task)
