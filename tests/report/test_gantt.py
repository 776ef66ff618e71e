"""The chart of a plan: lanes with what the simulator says, none beside another in one lane."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bench.devices.draw import draw_problem
from fusion.report.gantt import lanes_of, render_plan
from placement.choose import choose_plan
from placement.problem import OBJECTIVES


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(1, 5))
def test_lanes_are_the_plan(objective: str, seed: int) -> None:
    problem = draw_problem(seed)
    plan = choose_plan(problem, objective).plan
    lanes = lanes_of(problem, plan)
    assert [lane.name for lane in lanes[: len(problem.topology.devices)]] == [d.name for d in problem.topology.devices]
    kernels = [bar for lane in lanes if lane.kind == "kernel" for bar in lane.bars if bar.request == 0]
    assert len(kernels) == len(problem.tasks)
    assert max(bar.end for bar in kernels) == pytest.approx(plan.latency)
    for lane in lanes:
        assert 0 <= lane.busy <= 1 + 1e-9 or lane.kind == "copy"
        if lane.kind == "kernel":
            assert all(one.end <= two.start * (1 + 1e-9) + 1e-12 for one, two in pairwise(lane.bars))


def test_names_are_text() -> None:
    page = render_plan(choose_plan(draw_problem(1), OBJECTIVES[0]), "<script>")
    assert "<script>" not in page
