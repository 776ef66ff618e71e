"""The plan of a placement: tasks by what has to follow them."""

from __future__ import annotations

from collections.abc import Sequence

from placement.plan import DevicePlan
from placement.problem import PlacementProblem
from placement.simulate import schedule_once


def ranked_order(problem: PlacementProblem, placement: Sequence[int]) -> list[int]:
    """Return the tasks by falling length of the longest path from each to the end, with the times and copies of the
    placement; ties as in the graph, so each comes behind all that it reads."""
    latency, per_byte, seconds = problem.latency, problem.per_byte, problem.seconds
    ranks = [0.0] * len(placement)
    for task in reversed(problem.tasks):
        device, longest = placement[task], 0.0
        for consumer, size in problem.consumers[task]:
            target, rank = placement[consumer], ranks[consumer]
            if target != device:
                rank += latency[device][target] + size * per_byte[device][target]
            longest = max(longest, rank)
        ranks[task] = longest + seconds[task][device]
    return sorted(problem.tasks, key=lambda task: -ranks[task])


def ranked_plan(problem: PlacementProblem, placement: Sequence[int]) -> DevicePlan:
    """Return the plan of one request in that order."""
    return schedule_once(problem, placement, ranked_order(problem, placement))
