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
