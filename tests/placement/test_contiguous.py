"""Cuts of a graph's order into stages, against trying all of them."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np

from placement.check import why_not_valid
from placement.devices import OTHER, Device, Link, Topology
from placement.methods.contiguous import ContiguousStages
from placement.problem import THROUGHPUT, PlacementProblem
from placement.simulate import schedule_stream
from placement.tasks import TaskEdge, TaskGraph, TaskNode


def _random(rng: np.random.Generator) -> PlacementProblem:
    count, devices = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    tasks = [TaskNode(str(task), tuple(rng.integers(1, 20, devices) * 1e-3)) for task in range(count)]
    edges = [
        TaskEdge(source, target, float(rng.integers(1, 1000)))
        for source, target in combinations(range(count), 2) if rng.random() < 0.4
    ]  # fmt: skip
    known = tuple(Device(str(k), {OTHER: 1.0}, 1.0, float("inf")) for k in range(devices))
    return PlacementProblem(TaskGraph(tuple(tasks), tuple(edges)), Topology.uniform(known, Link(0.0, 1e9)))


def test_the_period_is_the_least_of_all_cuts() -> None:
    rng = np.random.default_rng(7)
    for _ in range(60):
        problem = _random(rng)
        plan = ContiguousStages(slack=0.0).find(problem, THROUGHPUT).plan
        tasks, periods = len(problem.tasks), list[float]()
        for used in range(1, min(len(problem.devices), tasks) + 1):
            for order in permutations(problem.devices, used):
                for cuts in combinations(range(1, tasks), used - 1):
                    ends = np.searchsorted(cuts, np.arange(tasks), side="right")
                    periods.append(schedule_stream(problem, [order[int(end)] for end in ends]).period)
        assert not why_not_valid(problem, plan)
        assert plan.period <= min(periods) * (1 + 1e-9)


def test_of_even_cuts_the_one_with_the_fewest_bytes() -> None:
    sizes = [500.0, 10.0, 500.0]
    tasks = tuple(TaskNode(str(task), (seconds, seconds)) for task, seconds in enumerate((1.0, 0.001, 0.001, 1.0)))
    edges = tuple(TaskEdge(task, task + 1, size) for task, size in enumerate(sizes))
    known = tuple(Device(str(k), {OTHER: 1.0}, 1.0, float("inf")) for k in range(2))
    problem = PlacementProblem(TaskGraph(tasks, edges), Topology.uniform(known, Link(0.0, 1e9)))
    assert ContiguousStages().find(problem, THROUGHPUT).plan.placement == (0, 0, 1, 1)
