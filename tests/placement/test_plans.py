"""Every plan of every method on random problems: valid, never below the bound, and as fast as simulating it."""

from __future__ import annotations

import dataclasses

import pytest

from bench.devices.brute_force import best_seconds
from bench.devices.draw import draw_problem
from fusion.declined import Declined
from fusion.errors import LimitError
from placement.bounds import lower_bound
from placement.check import why_not_valid
from placement.choose import PROVEN, choose_plan
from placement.methods.exact import ExactProgram
from placement.optional import has_optional
from placement.plan import DevicePlan
from placement.problem import LATENCY, OBJECTIVES, THROUGHPUT, PlacementProblem
from placement.simulate import replay

REQUESTS = 40


def check(problem: PlacementProblem, plan: DevicePlan, bound: float) -> None:
    """Assert what must hold of every plan."""
    assert why_not_valid(problem, plan) == ""
    assert plan.seconds >= bound * (1 - 1e-6)
    answered = replay(problem, plan, 1 if plan.objective == LATENCY else REQUESTS)
    if plan.objective == LATENCY:
        assert answered == [pytest.approx(plan.latency)]
        return
    for request, end in enumerate(answered):
        assert end <= (plan.latency + request * plan.period) * (1 + 1e-9)
    # Once the pipeline is full: what the busiest resource takes is what a request takes.
    assert max(answered) >= REQUESTS * plan.period * (1 - 1e-9)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(10))
def test_all_methods(seed: int, objective: str) -> None:
    problem = draw_problem(seed, largest=14)
    try:
        choice = choose_plan(problem, objective, exact_seconds=2.0 if has_optional() else 0.0)
    except LimitError:
        # Without HiGHS the methods may miss the plans there are.
        assert not has_optional() or best_seconds(problem, objective) == float("inf")
        return
    for plan in choice.others.values():
        check(problem, plan, choice.bound)
    assert choice.plan.seconds == min(plan.seconds for plan in choice.others.values())
    assert choice.bound >= lower_bound(problem, objective) * (1 - PROVEN)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(100, 140))
def test_exact_plans_are_the_best_of_all(seed: int, objective: str) -> None:
    """A thousand more by `python -m bench.devices --instances 1000`."""
    pytest.importorskip("highspy")
    problem = draw_problem(seed, largest=6)
    best = best_seconds(problem, objective)
    try:
        found = ExactProgram(seconds=20.0).find(problem, objective)
    except Declined:
        assert best == float("inf")
        return
    check(problem, found.plan, found.bound)
    assert found.plan.seconds == pytest.approx(best, rel=1e-5)


def test_what_is_broken_is_named() -> None:
    problem = draw_problem(7, largest=8)
    for objective in OBJECTIVES:
        plan = choose_plan(problem, objective).plan
        early = dataclasses.replace(plan, starts=(0.0,) * len(plan.starts))
        assert "starts before" in why_not_valid(problem, early) or "two things" in why_not_valid(problem, early)
    stream = choose_plan(problem, THROUGHPUT).plan
    assert why_not_valid(problem, dataclasses.replace(stream, period=stream.period / 2)) != ""
    full = dataclasses.replace(
        problem,
        topology=dataclasses.replace(
            problem.topology, devices=tuple(dataclasses.replace(each, memory=0.1) for each in problem.topology.devices)
        ),
    )
    assert "bytes and has" in why_not_valid(full, stream)
