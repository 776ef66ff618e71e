"""Replicas of the whole model: their period against simulated rounds, and what is no replica."""

from __future__ import annotations

import pytest

from bench.devices.draw import draw_problem
from fusion.declined import Declined
from placement.bounds import area_bound
from placement.devices import OTHER, Device, Link, Topology
from placement.problem import PlacementProblem
from placement.replicas import find_replicas
from placement.simulate import schedule_stream
from placement.tasks import TaskEdge, TaskGraph, TaskNode


def of(seconds: tuple[float, ...], *, memory: float = 1.0, room: float = 10.0, copies: int = 1) -> PlacementProblem:
    """Chains of two tasks beside each other, of which each keeps half of `memory`."""
    tasks = tuple(TaskNode(str(at), tuple(each / 2 for each in seconds), memory / 2) for at in range(2 * copies))
    edges = tuple(TaskEdge(2 * copy, 2 * copy + 1, 1.0) for copy in range(copies))
    devices = tuple(Device(str(k), {OTHER: 1.0}, 1.0, room) for k in range(len(seconds)))
    return PlacementProblem(TaskGraph(tasks, edges), Topology.uniform(devices, Link(1e6, 1e-9)))


def test_the_period_is_that_of_a_round_of_requests() -> None:
    """Of two requests on the fast device and one on the slow one, as one request of three copies of the model."""
    found = find_replicas(of((1.0, 2.0)))
    assert found.devices == (0, 1)
    simulated = schedule_stream(of((1.0, 2.0), copies=3), (0, 0, 0, 0, 1, 1))
    assert found.period == pytest.approx(simulated.period / 3)


def test_on_like_devices_they_are_at_the_bound() -> None:
    problem = of((1.0, 1.0, 1.0))
    assert find_replicas(problem).period == pytest.approx(area_bound(problem))


def test_they_are_never_below_the_bound_and_fit() -> None:
    found = 0
    for seed in range(100):
        problem = draw_problem(seed)
        try:
            replicas = find_replicas(problem)
        except Declined:
            continue
        found += 1
        assert replicas.period >= area_bound(problem) * (1 - 1e-9)
        assert all(sum(problem.memory) <= problem.room[device] for device in replicas.devices)
    assert found


@pytest.mark.parametrize(
    "problem", [of((1.0,)), of((1.0, 100.0)), of((1.0, float("inf"))), of((1.0, 1.0), memory=11.0)]
)
def test_where_one_device_does_as_well_there_are_none(problem: PlacementProblem) -> None:
    with pytest.raises(Declined, match="fewer than two"):
        find_replicas(problem)
