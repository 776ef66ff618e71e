"""Graphs taken apart at tasks that all others are before or behind, against the whole."""

from __future__ import annotations

import random
from dataclasses import replace

import networkx
import numpy as np
import pytest

from bench.devices.brute_force import best_seconds
from bench.devices.draw import draw_problem
from placement.bounds import lower_bound, segments_bound
from placement.check import why_not_valid
from placement.choose import choose_plan
from placement.devices import OTHER, Device, Link, Topology
from placement.methods.exact import ExactProgram
from placement.methods.segment_placements import SegmentPlacements
from placement.methods.segmented import SegmentedPlan, _all_rows
from placement.problem import LATENCY, OBJECTIVES, PlacementProblem
from placement.segments import Segment, segments_of
from placement.tasks import TaskEdge, TaskGraph, TaskNode


def in_series(seed: int, parts: int = 2, largest: int = 3) -> PlacementProblem:
    """Several random graphs, each behind all of the one before by a task between them; memories have room for all."""
    draw, problem = random.Random(seed), draw_problem(seed, largest=parts * (largest + 1) + 1)
    count, edges, at = len(problem.tasks), list[TaskEdge](), 0
    while at + 1 < count:
        end = min(at + 1 + draw.randint(0, largest), count - 1)
        for task in range(at + 1, end):
            edges += [TaskEdge(at, task, draw.random()), TaskEdge(task, end, draw.random())]
        if end == at + 1:
            edges.append(TaskEdge(at, end, draw.random()))
        at = end
    devices = tuple(replace(device, memory=1e9) for device in problem.topology.devices)
    return PlacementProblem(TaskGraph(problem.graph.tasks, tuple(edges)), replace(problem.topology, devices=devices))


@pytest.mark.parametrize("seed", range(30))
def test_segments_end_where_all_pass_through_one_task(seed: int) -> None:
    problem = draw_problem(seed, largest=12) if seed % 2 else in_series(seed)
    graph = networkx.DiGraph([(edge.source, edge.target) for edge in problem.graph.edges])
    graph.add_nodes_from(problem.tasks)
    count = len(problem.tasks)
    whole = [
        task for task in problem.tasks
        if len(networkx.ancestors(graph, task)) + len(networkx.descendants(graph, task)) == count - 1
        and not any(edge.source < task < edge.target for edge in problem.graph.edges)
    ]  # fmt: skip
    segments = segments_of(problem)
    assert [segment.exit for segment in segments if segment.exit < count] == whole
    assert [task for segment in segments for task in segment.tasks(problem)] == list(problem.tasks)


@pytest.mark.parametrize("seed", range(12))
def test_plans_and_bounds_by_segments(seed: int) -> None:
    pytest.importorskip("highspy")
    problem = in_series(seed)
    best = best_seconds(problem, LATENCY)
    assert segments_bound(problem) <= lower_bound(problem, LATENCY) <= best * (1 + 1e-9)
    if len(segments_of(problem)) < 2:
        return
    small = SegmentedPlan().find(problem, LATENCY)
    assert why_not_valid(problem, small.plan) == ""
    assert (small.plan.latency, small.bound) == (pytest.approx(best), pytest.approx(best))
    for known in (None, small.plan):
        found = ExactProgram(known, seconds=20.0).find(problem, LATENCY)
        assert why_not_valid(problem, found.plan) == ""
        assert found.plan.latency == pytest.approx(best, rel=1e-5)
        assert found.bound == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_no_order_is_below_the_bound_of_its_placement(seed: int) -> None:
    problem = draw_problem(seed, largest=6)
    size = len(problem.tasks)
    rows = np.indices((1, *(len(problem.devices),) * size)).reshape(size + 1, -1).T
    placements, every = SegmentPlacements(problem, False, False, rows), np.arange(len(rows))
    placements.try_orders(problem.tasks)
    placements.bound(every)
    lowest = placements.lowest.copy()
    placements.try_all_orders(every)
    assert (lowest <= placements.lengths * (1 + 1e-9)).all()


def test_a_large_segment_takes_what_is_known() -> None:
    """Too many placements to try: those on one device, and those of plans."""
    drawn = (in_series(seed, parts=2, largest=14) for seed in range(20))
    problem = next(each for each in drawn if max(len(part.tasks(each)) for part in segments_of(each)) > 12)
    alone = SegmentedPlan().find(problem, LATENCY).plan
    known = ExactProgram(alone, seconds=0.5).find(problem, LATENCY).plan
    assert SegmentedPlan([known]).find(problem, LATENCY).plan.latency <= alone.latency


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_many_tasks_on_one_device(objective: str) -> None:
    """NumPy has no array of as many axes as the segment between the first task and the last has tasks."""
    edges = [edge for task in range(1, 99) for edge in (TaskEdge(0, task, 1.0), TaskEdge(task, 99, 1.0))]
    graph = TaskGraph((TaskNode("", (1.0,)),) * 100, tuple(edges))
    alone = Topology.uniform((Device("one", {OTHER: 1.0}, 1.0, 1e9),), Link(0.0, 1.0))
    problem = PlacementProblem(graph, alone)
    choice = choose_plan(problem, objective)
    assert choice.seconds == choice.bound == pytest.approx(100.0)
    assert SegmentedPlan.name not in choice.others


def test_all_placements_of_a_segment_on_one_device_are_one() -> None:
    assert _all_rows(1, 101).tolist() == [[0] * 101]
    assert _all_rows(3, 2).tolist() == [[i, j] for i in range(3) for j in range(3)]


def test_the_ends_of_a_segment() -> None:
    problem = in_series(1)
    assert Segment(-1, 0).tasks(problem) == range(1)
    assert Segment(0, len(problem.tasks)).tasks(problem).stop == len(problem.tasks)
