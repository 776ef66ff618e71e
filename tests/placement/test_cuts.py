"""Where plans cut the graph, and what they would take otherwise."""

from __future__ import annotations

import math

import pytest

from bench.devices.draw import draw_problem
from placement.choose import choose_plan
from placement.cuts import cuts_of
from placement.devices import OTHER, Device, Link, Topology
from placement.methods.random_placement import RandomPlacement
from placement.mixes import find_mix
from placement.optional import has_optional
from placement.problem import LATENCY, OBJECTIVES, THROUGHPUT, PlacementProblem
from placement.simulate import schedule
from placement.tasks import TaskEdge, TaskGraph, TaskNode


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(1, 6))
def test_otherwise_is_what_the_simulator_says(seed: int, objective: str) -> None:
    problem = draw_problem(seed, largest=12)
    plan = RandomPlacement().find(problem, objective).plan
    cuts = cuts_of(problem, plan, most=100)
    assert sorted((copy.task, copy.target) for cut in cuts for copy in cut.copies) == sorted(
        (copy.task, copy.target) for copy in plan.copies
    )
    for cut in cuts:
        (copy,) = cut.copies
        assert all(plan.placement[reader] == copy.target for reader in cut.readers)
        for moved, to, seconds in (
            ((copy.task,), copy.target, cut.made_there), (cut.readers, copy.source, cut.read_here),
        ):  # fmt: skip
            placement = [to if task in moved else k for task, k in enumerate(plan.placement)]
            kept = sum(problem.memory[task] for task, k in enumerate(placement) if k == to)
            possible = all(problem.seconds[task][to] < math.inf for task in moved) and kept <= problem.room[to]
            assert math.isfinite(seconds) == possible
            if possible:
                assert seconds == pytest.approx(schedule(problem, objective, placement, plan.order).seconds)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_device_that_is_full_takes_nothing_more(objective: str) -> None:
    tasks = tuple(TaskNode(f"task {at}", (1.0, 1.0), memory=1.0) for at in range(4))
    graph = TaskGraph(tasks, tuple(TaskEdge(at, at + 1, 1.0) for at in range(3)))
    devices = tuple(Device(f"device {k}", {OTHER: 1.0}, 1.0, room) for k, room in enumerate((2.0, 3.0)))
    problem = PlacementProblem(graph, Topology.uniform(devices, Link(0.0, 1e9)))
    (cut,) = cuts_of(problem, schedule(problem, objective, (0, 0, 1, 1)), most=1)
    assert (cut.copies[0].task, cut.readers) == (1, (2,))
    assert math.isfinite(cut.made_there)
    assert math.isinf(cut.read_here)


@pytest.mark.skipif(not has_optional(), reason="HiGHS is not installed")
def test_requests_of_a_round_move_together() -> None:
    """Unlike placements of three tasks: what the copies of a task keep is there once."""
    tasks = tuple(TaskNode(f"task {at}", (3.0, 3.0), memory=1.0) for at in range(3))
    graph = TaskGraph(tasks, (TaskEdge(0, 1, 1.0), TaskEdge(1, 2, 1.0)))
    devices = tuple(Device(f"device {k}", {OTHER: 1.0}, 1.0, 3.0) for k in range(2))
    problem = PlacementProblem(graph, Topology.uniform(devices, Link(0.0, 1e9)))
    mix = find_mix(problem, [(0, 0, 1), (0, 1, 1)], seconds=1.0)
    assert mix.requests > 1
    cuts = cuts_of(mix.problem, mix.plan, 10, mix.requests)
    assert all(math.isfinite(cut.made_there) and math.isfinite(cut.read_here) for cut in cuts)
    assert sum(len(cut.copies) for cut in cuts) == len(mix.plan.copies) > len(cuts)


def test_a_plan_on_one_device_has_none() -> None:
    problem = draw_problem(3)
    for objective in (LATENCY, THROUGHPUT):
        choice = choose_plan(problem, objective)
        on_one = len(set(choice.plan.placement)) == 1
        assert bool(cuts_of(problem, choice.plan, 5)) == (not on_one and bool(choice.plan.copies))
