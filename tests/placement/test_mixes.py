"""Streams whose requests have placements of their own."""

from __future__ import annotations

import dataclasses

import pytest

from bench.devices.draw import draw_problem
from fusion.declined import Declined
from fusion.errors import LimitError
from placement.bounds import area_bound
from placement.check import why_not_valid
from placement.choose import choose_plan, mix_requests
from placement.mixes import find_mix
from placement.problem import THROUGHPUT
from placement.simulate import replay
from tests.placement.test_replicas import of

pytest.importorskip("highspy")


def test_requests_alternate_between_devices() -> None:
    """Whole models on two like devices, and of unlike ones as many on each as it is fast."""
    mix = find_mix(of((1.0, 1.0)), [], seconds=1.0)
    assert (mix.requests, mix.period) == (2, pytest.approx(0.5))
    mix = find_mix(of((1.0, 2.0)), [], seconds=1.0)
    assert (mix.requests, mix.period) == (3, pytest.approx(2 / 3))
    assert mix.bound == pytest.approx(2 / 3, rel=2e-3)


def test_a_placement_is_made_as_it_is_wanted() -> None:
    """Each device is good at one half of the model, and copies are cheap: neither whole is any good."""
    problem = of((1.0, 1.0))
    tasks = tuple(
        dataclasses.replace(task, seconds=(1.0, 9.0) if at == 0 else (9.0, 2.0))
        for at, task in enumerate(problem.graph.tasks)
    )
    problem = dataclasses.replace(problem, graph=dataclasses.replace(problem.graph, tasks=tasks))
    topology = dataclasses.replace(
        problem.topology,
        links=tuple(tuple(dataclasses.replace(link, latency_us=1.0) for link in row) for row in problem.topology.links),
    )
    problem = dataclasses.replace(problem, topology=topology)
    mix = find_mix(problem, [], seconds=5.0)
    assert mix.period < 2.0
    assert mix.period >= mix.bound * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_mixes_hold_what_plans_hold(seed: int) -> None:
    problem = draw_problem(seed, largest=8)
    try:
        choice = choose_plan(problem, THROUGHPUT)
    except LimitError:
        return
    mixed = mix_requests(choice)
    assert mixed.seconds <= choice.seconds
    assert mixed.seconds >= mixed.bound * (1 - 1e-6)
    assert mixed.bound >= area_bound(problem) * (1 - 1e-9)
    assert why_not_valid(mixed.problem, mixed.plan) == ""
    answered = replay(mixed.problem, mixed.plan, 12)
    for request, end in enumerate(answered):
        assert end <= (mixed.plan.latency + request * mixed.plan.period) * (1 + 1e-9)
    # What several requests keep on a device is there once, and fits.
    there = {(task % len(problem.tasks), device) for task, device in enumerate(mixed.plan.placement)}
    for device, room in enumerate(problem.room):
        assert sum(problem.memory[task] for task, where in there if where == device) <= room * (1 + 1e-6)


def test_memories_without_room_for_two_models() -> None:
    with pytest.raises(Declined, match="no placement fits"):
        find_mix(of((1.0, 1.0), memory=11.0), [], seconds=1.0)


def test_what_takes_no_time_is_not_mixed() -> None:
    problem = of((0.0, 0.0))
    choice = choose_plan(problem, THROUGHPUT)
    assert choice.seconds == 0.0
    assert mix_requests(choice) is choice
