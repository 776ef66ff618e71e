"""Where a plan cuts the graph, and what it would take with each cut elsewhere."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from placement.plan import DevicePlan, PlannedCopy
from placement.problem import LATENCY, PlacementProblem
from placement.simulate import finish, loads


@dataclass(frozen=True)
class PlanCut:
    """A result that one device makes and another reads.

    Attributes:
        copies: Of the result, one for each request that has it.
        readers: The tasks there that read it, of the first of these requests.
        made_there: Seconds of the plan if the result were made where it is read, in all of them; infinite where that is
            not possible.
        read_here: The same if all that read it there ran where it is made.
    """

    copies: tuple[PlannedCopy, ...]
    readers: tuple[int, ...]
    made_there: float
    read_here: float


def cuts_of(problem: PlacementProblem, plan: DevicePlan, most: int, requests: int = 1) -> list[PlanCut]:
    """Return the cuts of a plan whose copies take the longest, at most so many, the longest first.

    Args:
        requests: Copies of the model that `problem` consists of.
    """
    size = len(problem.tasks) // max(requests, 1)
    found = defaultdict[tuple[int, int, int], list[PlannedCopy]](list)
    for copy in plan.copies:
        found[copy.task % size, copy.source, copy.target].append(copy)
    longest = sorted(found, key=lambda cut: (-sum(copy.seconds for copy in found[cut]), cut))
    return [_cut(problem, plan, tuple(found[cut]), size) for cut in longest[:most]]


def seconds_with(
    problem: PlacementProblem, plan: DevicePlan, tasks: Sequence[int], device: int, size: int
) -> float:
    """Return what a plan takes with `tasks` on `device`, the others where they are and in its order; infinite where
    that cannot run one of them, or has no room for them.

    Args:
        size: Tasks of the model, of which `problem` has one or several copies.
    """
    placement = list(plan.placement)
    for task in tasks:
        placement[task] = device
    if _kept(problem, placement, device, size) > problem.room[device]:
        return math.inf
    if plan.objective == LATENCY:
        return finish(problem, placement, plan.order)
    return max(loads(problem, placement).values())


def _cut(problem: PlacementProblem, plan: DevicePlan, copies: tuple[PlannedCopy, ...], size: int) -> PlanCut:
    source, target = copies[0].source, copies[0].target
    readers = [
        [consumer for consumer, _ in problem.consumers[copy.task] if plan.placement[consumer] == target]
        for copy in copies
    ]
    return PlanCut(
        copies,
        tuple(readers[0]),
        made_there=seconds_with(problem, plan, [copy.task for copy in copies], target, size),
        read_here=seconds_with(problem, plan, [task for each in readers for task in each], source, size),
    )


def _kept(problem: PlacementProblem, placement: Sequence[int], device: int, size: int) -> float:
    """Return the bytes that a device keeps, of each task of the model once: of copies of it, one tells how many."""
    there = {task % size for task, k in enumerate(placement) if k == device}
    return sum(max(problem.memory[task] for task in range(each, len(placement), size)) for each in there)
