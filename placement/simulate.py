"""What a placement takes: the one simulator that all methods, tests and reports share.

`schedule_once` and `schedule_stream` make the plan of a placement; `replay` lets a plan run, request by request, each
device doing its tasks in the plan's order as soon as it can.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from placement.plan import DevicePlan, PlannedCopy
from placement.problem import LATENCY, THROUGHPUT, PlacementProblem

Resource = tuple[int, int]
"""A device, twice; or a link, from and to."""
_ROUNDING = 1e-9
"""Part of a period by which a start may be early: what sums of floats differ by."""


def schedule(
    problem: PlacementProblem, objective: str, placement: Sequence[int], order: Sequence[int] | None = None
) -> DevicePlan:
    """Return the plan of a placement, with tasks in an order in which each comes after those that it reads; None for
    that of the graph."""
    if objective == LATENCY:
        return schedule_once(problem, placement, problem.tasks if order is None else order)
    return schedule_stream(problem, placement)


def start_times(problem: PlacementProblem, placement: Sequence[int], order: Sequence[int]) -> list[float]:
    """Return when each task starts if each device runs its tasks in `order` as soon as what they read is there."""
    latency, per_byte, seconds = problem.latency, problem.per_byte, problem.seconds
    starts, ends = [0.0] * len(placement), [0.0] * len(placement)
    free = [0.0] * len(problem.devices)
    producers = problem.producers
    for task in order:
        device = placement[task]
        start = free[device]
        for producer, size in producers[task]:
            source, ready = placement[producer], ends[producer]
            if source != device:
                ready += latency[source][device] + size * per_byte[source][device]
            if ready > start:  # a call of max takes three times as long
                start = ready
        starts[task] = start
        free[device] = ends[task] = start + seconds[task][device]
    return starts


def finish(problem: PlacementProblem, placement: Sequence[int], order: Sequence[int]) -> float:
    """Return when the last task ends."""
    starts = start_times(problem, placement, order)
    return max(start + each[device] for start, each, device in zip(starts, problem.seconds, placement, strict=True))


def schedule_once(problem: PlacementProblem, placement: Sequence[int], order: Sequence[int]) -> DevicePlan:
    """Return the plan of one request."""
    starts = start_times(problem, placement, order)
    ends = [start + problem.seconds[task][placement[task]] for task, start in enumerate(starts)]
    copies = tuple(
        PlannedCopy(task, placement[task], target, ends[task], problem.copy_seconds(size, placement[task], target))
        for task, targets in enumerate(_targets(problem, placement))
        for target, size in sorted(targets.items())
    )
    latency = max(ends, default=0.0)
    return DevicePlan(LATENCY, tuple(placement), tuple(starts), copies, latency=latency, period=latency)


def _targets(problem: PlacementProblem, placement: Sequence[int]) -> list[dict[int, float]]:
    """Return where the result of each task goes, and how many bytes."""
    found: list[dict[int, float]] = [{} for _ in placement]
    for edge in problem.graph.edges:
        target = placement[edge.target]
        if target != placement[edge.source]:
            found[edge.source][target] = max(edge.bytes, found[edge.source].get(target, 0.0))
    return found


def loads(problem: PlacementProblem, placement: Sequence[int]) -> dict[Resource, float]:
    """Return how long a request keeps each device and link busy."""
    found: dict[Resource, float] = defaultdict(float)
    for task, device in enumerate(placement):
        found[device, device] += problem.seconds[task][device]
    for task, targets in enumerate(_targets(problem, placement)):
        source = placement[task]
        for target in targets:
            found[source, target] += problem.copy_seconds(problem.sent[task], source, target)
    return found


def schedule_stream(problem: PlacementProblem, placement: Sequence[int]) -> DevicePlan:
    """Return the plan of a stream of requests: a modulo schedule (Rau 1994).

    The period is the load of the busiest device or link. In each period a resource does what a request needs of it
    once, in the order of the graph, for the latest request whose data is there by then.
    """
    period = max(loads(problem, placement).values(), default=0.0)
    used: dict[Resource, float] = defaultdict(float)

    def next_start(resource: Resource, ready: float, seconds: float) -> float:
        offset = used[resource]
        used[resource] += seconds
        return offset + period * max(0, math.ceil((ready - offset) / period - _ROUNDING)) if period else 0.0

    starts, copies = list[float](), list[PlannedCopy]()
    arrivals: dict[tuple[int, int], float] = {}
    for task, targets in enumerate(_targets(problem, placement)):
        device = placement[task]
        ready = max((arrivals[producer, device] for producer, _ in problem.producers[task]), default=0.0)
        seconds = problem.seconds[task][device]
        starts.append(next_start((device, device), ready, seconds))
        end = arrivals[task, device] = starts[-1] + seconds
        for target in sorted(targets):
            seconds = problem.copy_seconds(problem.sent[task], device, target)
            copy = PlannedCopy(task, device, target, next_start((device, target), end, seconds), seconds)
            arrivals[task, target] = copy.start + seconds
            copies.append(copy)
    latency = max((arrivals[task, device] for task, device in enumerate(placement)), default=0.0)
    return DevicePlan(THROUGHPUT, tuple(placement), tuple(starts), tuple(copies), latency=latency, period=period)


def replay(problem: PlacementProblem, plan: DevicePlan, requests: int = 1) -> list[float]:
    """Return when each of several requests, all there at the beginning, is answered.

    Devices and links do their work in the order of the plan, that of the next request a period later, and as soon as
    data and resource are there; nothing waits for the times that the plan has.
    """
    copies = {(copy.task, copy.target): copy for copy in plan.copies}
    items = [(start, task, -1) for task, start in enumerate(plan.starts)]
    items += [(copy.start, task, target) for (task, target), copy in copies.items()]
    free: dict[Resource, float] = defaultdict(float)
    arrivals: dict[tuple[int, int, int], float] = {}
    answered = [0.0] * requests
    several = plan.objective == THROUGHPUT
    for _, request, task, target in sorted(
        (start + request * plan.period, request, task, target)
        for request in range(requests)
        for start, task, target in items
    ):
        device = plan.placement[task]
        if target < 0:
            ready = [arrivals[request, producer, device] for producer, _ in problem.producers[task]]
            end = max([free[device, device], *ready]) + problem.seconds[task][device]
            free[device, device] = arrivals[request, task, device] = end
            answered[request] = max(answered[request], end)
        else:
            ready_copy = arrivals[request, task, device]
            start = max(ready_copy, free[device, target]) if several else ready_copy
            free[device, target] = arrivals[request, task, target] = start + copies[task, target].seconds
    return answered
