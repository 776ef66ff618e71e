"""What every plan must hold, read from its times and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from placement.plan import DevicePlan
from placement.problem import THROUGHPUT, PlacementProblem

_TOLERANCE = 1e-6
"""Part of a plan's time by which its times may be off: HiGHS's own tolerance of rows."""


def why_not_valid(problem: PlacementProblem, plan: DevicePlan) -> str:
    """Return what `plan` breaks of precedence, memory and exclusivity, or "" where it breaks nothing."""
    return (
        next(iter(_late_data(problem, plan)), "")
        or next(iter(_full_memories(problem, plan)), "")
        or next(iter(_overlaps(problem, plan)), "")
    )


def _late_data(problem: PlacementProblem, plan: DevicePlan) -> Iterable[str]:
    slack = _TOLERANCE * max(plan.latency, plan.period)
    ends = [start + problem.seconds[task][plan.placement[task]] for task, start in enumerate(plan.starts)]
    copies = {(copy.task, copy.target): copy for copy in plan.copies}
    for copy in plan.copies:
        if copy.start < ends[copy.task] - slack:
            yield f"the result of task {copy.task} is copied before it is there"
    for edge in problem.graph.edges:
        source, target = plan.placement[edge.source], plan.placement[edge.target]
        ready = ends[edge.source]
        if source != target:
            copy = copies[edge.source, target]
            ready = copy.start + problem.copy_seconds(edge.bytes, source, target)
        if plan.starts[edge.target] < ready - slack:
            yield f"task {edge.target} starts before the result of task {edge.source} is there"
    if max(ends, default=0.0) > plan.latency + slack:
        yield "a task ends after the plan's latency"


def _full_memories(problem: PlacementProblem, plan: DevicePlan) -> Iterable[str]:
    for device in problem.devices:
        kept = sum(problem.memory[task] for task in problem.tasks if plan.placement[task] == device)
        if kept > problem.room[device] * (1 + _TOLERANCE):
            yield f"device {device} keeps {kept:.0f} bytes and has {problem.room[device]:.0f}"


def _overlaps(problem: PlacementProblem, plan: DevicePlan) -> Iterable[str]:
    """Yield what two things do at once; in a stream, positions in a period are what is compared."""
    stream = plan.objective == THROUGHPUT
    busy: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for task, start in enumerate(plan.starts):
        device = plan.placement[task]
        busy[device, device].append((start, problem.seconds[task][device]))
    for copy in plan.copies if stream else ():
        busy[copy.source, copy.target].append((copy.start, copy.seconds))
    slack = _TOLERANCE * max(plan.latency, plan.period)
    for (source, target), spans in busy.items():
        where = f"device {source}" if source == target else f"the link from device {source} to {target}"
        spans = _in_one_period(spans, plan.period, slack) if stream else sorted(spans)
        for (start, seconds), (following, _) in pairwise(spans):
            if start + seconds > following + slack:
                yield f"{where} does two things at {following}"
        if stream and spans and spans[-1][0] + spans[-1][1] > spans[0][0] + plan.period + slack:
            yield f"{where} is not free when the next request comes"


def _in_one_period(spans: Iterable[tuple[float, float]], period: float, slack: float) -> list[tuple[float, float]]:
    if not period:
        return sorted(spans)
    folded = ((start % period, seconds) for start, seconds in spans)
    # A start that rounding puts at the end of a period is at the beginning of the next.
    return sorted((0.0 if period - start < slack else start, seconds) for start, seconds in folded)
