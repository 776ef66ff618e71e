"""Which plan of a stream is taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fusion.declined import Declined
from fusion.devices.choose_stages import one_after_the_other, plan_latency, plan_throughput
from placement.devices import OTHER, Device, Link, Topology
from placement.problem import PlacementProblem
from placement.tasks import TaskEdge, TaskGraph, TaskNode


@pytest.mark.parametrize(("slower", "pipelines"), [(1.04, 2), (1.2, 1)])
def test_replicas_are_taken_unless_a_pipeline_is_clearly_faster(slower: float, pipelines: int) -> None:
    """Of two tasks each is faster on a device of its own: by the noise of what was measured, or by more."""
    devices = tuple(Device(f"device {k}", {OTHER: 1.0}, 1.0, 1e9) for k in range(2))
    tasks = (TaskNode("first", (1.0, slower)), TaskNode("second", (slower, 1.0)))
    problem = PlacementProblem(TaskGraph(tasks, (TaskEdge(0, 1, 8.0),)), Topology.uniform(devices, Link(1.0, 8.0)))
    assert len(plan_throughput(problem).pipelines) == pipelines


def test_a_stream_of_which_no_time_is_known_has_a_plan() -> None:
    """As of what libraries run, to which all of a model may be left."""
    devices = tuple(Device(f"device {k}", {OTHER: 1.0}, 1.0, 1e9) for k in range(2))
    plan = plan_throughput(
        PlacementProblem(TaskGraph((TaskNode("one", (0.0, 0.0)),), ()), Topology.uniform(devices, Link(1.0, 8.0)))
    )
    assert (plan.seconds, [stage.cut for stage in plan.stages]) == (0.0, ["the model begins here"])


def test_a_call_is_cut_where_it_would_take_longer_otherwise() -> None:
    """Two branches beside each other, each on the device that is good at it, and their sum on the first."""
    devices = tuple(Device(f"device {k}", {OTHER: 1.0}, 1.0, 1e9) for k in range(2))
    times = ((1e-3, 9e-3), (4e-3, 9e-3), (9e-3, 3e-3), (1e-3, 9e-3))
    tasks = tuple(TaskNode(name, each) for name, each in zip(("in", "left", "right", "sum"), times, strict=True))
    edges = tuple(TaskEdge(source, target, 8.0) for source, target in ((0, 1), (0, 2), (1, 3), (2, 3)))
    problem = PlacementProblem(TaskGraph(tasks, edges), Topology.uniform(devices, Link(100.0, 8.0)))
    plan = plan_latency(problem)
    assert plan.seconds == pytest.approx(6e-3)
    cuts = [stage.cut for stage in plan.stages if "waits for" in stage.cut]
    assert cuts == [
        "right waits for in: a call would take 14.100 ms with both on device 1, 15.000 ms with both on device 0",
        "sum waits for right: a call would take 15.000 ms with both on device 0, 14.100 ms with both on device 1",
    ]


def test_streams_run_as_calls_where_no_plan_for_them_fits() -> None:
    """Three tasks fit on two devices for a call, but not as runs of the graph, which streams are cut into."""
    sizes = (1e6, 2e6, 1e6)
    devices = tuple(Device(f"device {k}", {OTHER: 1.0}, 1.0, 2e6) for k in range(2))
    tasks = tuple(TaskNode(f"task {at}", (1e-3, 1e-3), size) for at, size in enumerate(sizes))
    edges = tuple(TaskEdge(at, at + 1, 8.0) for at in range(2))
    problem = PlacementProblem(TaskGraph(tasks, edges), Topology.uniform(devices, Link(1.0, 8.0)))
    once = plan_latency(problem)
    with pytest.raises(Declined, match=r"keeps 4.000 MB, device 0 has 2.000 MB") as reason:
        plan_throughput(problem)
    many = one_after_the_other(problem, once, str(reason.value))
    assert (many.pipelines, many.objective) == (once.pipelines, "throughput")
    assert many.bound == pytest.approx(1.5e-3)
    assert replace(many, bound=0.0).gap is None
