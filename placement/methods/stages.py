"""Stages of a pipeline: each device takes a run of tasks that follow each other."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from fusion.declined import Declined
from placement.memory_book import MemoryBook
from placement.methods.method import FoundPlan
from placement.problem import THROUGHPUT, PlacementProblem
from placement.simulate import schedule_stream

_ORDERS = 24
"""Orders of the devices that are tried: all of up to four devices."""
_HALVINGS = 30


@dataclass(frozen=True)
class PipelineStages:
    """The graph's order cut into as many runs as there are devices, by their work alone."""

    name: str = "stages"

    def find(self, problem: PlacementProblem, objective: str) -> FoundPlan:
        """Return the best over several orders of the devices.

        Raises:
            Declined: The objective is not throughput, or memories are too small for runs.
        """
        if objective != THROUGHPUT:
            raise Declined("stages are for streams of requests")
        placements = (_shortest(problem, order) for order in _orders(problem))
        plans = [schedule_stream(problem, placement) for placement in placements if placement]
        if not plans:
            raise Declined("the memories are too small for runs of the graph")
        return FoundPlan(min(plans, key=lambda plan: plan.period))


def _orders(problem: PlacementProblem) -> Iterator[Sequence[int]]:
    if len(problem.devices) <= 4:
        yield from permutations(problem.devices)
        return
    draw = random.Random(0)
    for _ in range(_ORDERS):
        yield draw.sample(problem.devices, len(problem.devices))


def _shortest(problem: PlacementProblem, order: Sequence[int]) -> list[int]:
    """Return the runs with the least period over devices in this order, found by halving; none if none fit."""
    high = sum(max(seconds for seconds in each if seconds < float("inf")) for each in problem.seconds)
    best = _fill(problem, order, high)
    low = 0.0
    for _ in range(_HALVINGS if best else 0):
        middle = (low + high) / 2
        found = _fill(problem, order, middle)
        low, high = (low, middle) if found else (middle, high)
        best = found or best
    return best


def _fill(problem: PlacementProblem, order: Sequence[int], period: float) -> list[int]:
    """Return the placement in which each device takes tasks until the period is full; nothing if some are left."""
    book, placement, position, busy = MemoryBook(problem), list[int](), 0, 0.0
    for task in problem.tasks:
        while busy + problem.seconds[task][order[position]] > period or not book.has_room(task, order[position]):
            position, busy = position + 1, 0.0
            if position == len(order):
                return []
        placement.append(order[position])
        busy += problem.seconds[task][order[position]]
        book.take(task, order[position])
    return placement
