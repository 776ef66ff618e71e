"""Single methods: their papers' examples, what they decline, and what they need."""

from __future__ import annotations

import sys

import pytest

from bench.devices.__main__ import SERVER
from bench.devices.draw import draw_problem
from bench.devices.networks import operators_of
from fusion.declined import Declined
from fusion.errors import LimitError, NotInstalledError
from placement.bounds import area_bound, lower_bound
from placement.check import why_not_valid
from placement.choose import choose_plan
from placement.devices import OTHER, Device, Link, Topology, Work
from placement.devices_file import read_devices
from placement.methods.exact import ExactProgram
from placement.methods.fastest import FastestDevice
from placement.methods.heft import Heft
from placement.methods.local_search import LocalSearch
from placement.methods.method import Method
from placement.methods.split_graph import split_graph
from placement.methods.stages import PipelineStages
from placement.problem import LATENCY, OBJECTIVES, THROUGHPUT, PlacementProblem
from placement.tasks import PlacedOperator, TaskEdge, TaskGraph, TaskNode, tasks_of

# Figure 2 and its table of Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for
# heterogeneous computing" (2002): seconds on three processors, and what edges send at one unit a byte.
SECONDS = (
    (14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10),
    (13, 16, 9), (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16),
)  # fmt: skip
EDGES = (
    (0, 1, 18), (0, 2, 12), (0, 3, 9), (0, 4, 11), (0, 5, 14), (1, 7, 19), (1, 8, 16), (2, 6, 23),
    (3, 7, 27), (3, 8, 23), (4, 8, 13), (5, 7, 15), (6, 9, 17), (7, 9, 11), (8, 9, 13),
)  # fmt: skip


def machines(count: int, memory: float = 1e9) -> tuple[Device, ...]:
    return tuple(Device(f"device {k}", {OTHER: 1.0}, 1.0, memory) for k in range(count))


def of_paper() -> PlacementProblem:
    tasks = tuple(TaskNode(f"n{index}", tuple(map(float, row))) for index, row in enumerate(SECONDS))
    edges = tuple(TaskEdge(source, target, float(size)) for source, target, size in EDGES)
    return PlacementProblem(TaskGraph(tasks, edges), Topology.uniform(machines(3), Link(0.0, 1e-9)))


def test_heft_finds_the_schedule_of_its_paper() -> None:
    assert Heft().find(of_paper(), LATENCY).plan.latency == pytest.approx(80.0)


def test_the_best_schedule_of_the_example() -> None:
    pytest.importorskip("highspy")
    choice = choose_plan(of_paper(), LATENCY, exact_seconds=60.0)
    assert choice.plan.latency == pytest.approx(choice.bound)
    assert choice.plan.latency < 80.0


def test_a_chain_stays_on_the_fastest_device_where_copies_are_dear() -> None:
    work = Work("matmul", 2e9, 1e6)
    operators = [PlacedOperator(f"matmul {i}", work, (i - 1,) if i else (), 1e6, 1e6) for i in range(6)]
    devices = tuple(Device(f"gpu {k}", {OTHER: 100.0, "matmul": rate}, 100.0, 1e9) for k, rate in enumerate((1e3, 2e3)))
    topology = Topology.uniform(devices, Link(10_000.0, 1.0))
    choice = choose_plan(PlacementProblem(tasks_of(operators, topology), topology), LATENCY)
    assert (choice.method, choice.plan.placement) == ("fastest device", (1,) * 6)
    assert choice.plan.latency == pytest.approx(6 * 2e9 / 2e12)
    assert choice.gap == pytest.approx(0.0)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_tasks_take_no_time(objective: str) -> None:
    choice = choose_plan(PlacementProblem(TaskGraph((), ()), Topology.uniform(machines(3), Link(0.0, 1.0))), objective)
    assert (choice.seconds, choice.gap, choice.plan.placement) == (0.0, 0.0, ())


def test_stages_share_a_stream() -> None:
    tasks = tuple(TaskNode(f"task {i}", (1.0, 2.0)) for i in range(9))
    edges = tuple(TaskEdge(i, i + 1, 1.0) for i in range(8))
    problem = PlacementProblem(TaskGraph(tasks, edges), Topology.uniform(machines(2), Link(0.0, 1.0)))
    assert PipelineStages().find(problem, THROUGHPUT).plan.period == pytest.approx(6.0)
    assert lower_bound(problem, THROUGHPUT) == pytest.approx(6.0, rel=1e-3)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_model_larger_than_any_memory_is_divided(objective: str) -> None:
    tasks = tuple(TaskNode(f"task {i}", (1.0, 2.0), memory=1.0) for i in range(6))
    edges = tuple(TaskEdge(i, i + 1, 0.1) for i in range(5))
    graph = TaskGraph(tasks, edges)
    problem = PlacementProblem(graph, Topology.uniform(machines(2, memory=3.0), Link(0.0, 1.0)))
    with pytest.raises(Declined, match="no device can hold"):
        FastestDevice().find(problem, objective)
    assert sorted(choose_plan(problem, objective).plan.placement) == [0, 0, 0, 1, 1, 1]
    small = PlacementProblem(graph, Topology.uniform(machines(2, memory=2.0), Link(0.0, 1.0)))
    with pytest.raises(LimitError, match=r"(?s)no method found a plan.*the model keeps .*, device 0 has .* MB"):
        choose_plan(small, objective)


def test_area_bound_is_that_of_the_linear_program() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    problem = draw_problem(11, largest=30, devices=3)
    tasks, devices = len(problem.tasks), 3
    large = [min(each, 1e6) for row in problem.seconds for each in row]
    loads = [[large[c] if c % devices == k else 0.0 for c in range(tasks * devices)] + [-1.0] for k in range(devices)]
    whole = [[float(c // devices == task) for c in range(tasks * devices)] + [0.0] for task in range(tasks)]
    found = optimize.linprog([0.0] * tasks * devices + [1.0], loads, [0.0] * devices, whole, [1.0] * tasks)
    assert found.fun * 0.995 <= area_bound(problem) <= found.fun * (1 + 1e-9)


@pytest.mark.parametrize(("objective", "begin"), [(LATENCY, Heft()), (THROUGHPUT, PipelineStages())])
def test_local_search_leaves_what_it_begins_with(objective: str, begin: Method) -> None:
    """With a twentieth of its moves: where it took larger ones, or began hotter, it gained less than 2%."""
    topology = read_devices(SERVER)
    problem = PlacementProblem(tasks_of(operators_of("BA(5)"), topology), topology)
    known = begin.find(problem, objective).plan
    found = LocalSearch(known, visits=300_000).find(problem, objective).plan
    assert why_not_valid(problem, found) == ""
    assert found.seconds < 0.98 * known.seconds


def test_parts_depend_on_earlier_ones_only() -> None:
    problem = draw_problem(5, largest=200)
    parts = split_graph(problem, 12)
    of = {task: index for index, part in enumerate(parts) for task in part}
    assert sorted(of) == list(problem.tasks)
    assert max(map(len, parts)) <= 12
    assert all(of[edge.source] <= of[edge.target] for edge in problem.graph.edges)


def test_without_the_solver_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(NotInstalledError, match=r"fusion\[devices\]"):
        ExactProgram().find(of_paper(), LATENCY)
