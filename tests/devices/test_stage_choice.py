"""Which plan of a stream is taken."""

from __future__ import annotations

import pytest

from fusion.devices.choose_stages import plan_throughput
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
