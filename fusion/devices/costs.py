"""What the tasks of a model take on each device, and what they send each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusion.devices.cut_graph import CutGraph, GraphStep
from fusion.devices.targets import CoreSet
from placement.devices import OTHER, Device, Link, Topology
from placement.problem import PlacementProblem
from placement.tasks import TaskEdge, TaskGraph, TaskNode

Seconds = Mapping[str, float]
"""What one call of each kernel takes."""
HAND_OFF = Link(latency_us=60.0, gbs=8.0)
"""From one CPU to another of a process: a thread wakes the other, which reads what the first one's caches hold."""


def estimated(graph: CutGraph, devices: Sequence[CoreSet]) -> list[Seconds]:
    """Return what kernels take on each device by the backend's estimates, which are those of the most threads; with
    fewer the work is divided among these."""
    most = max(device.threads for device in devices)
    kernels = graph.lowered.kernels.items()
    return [
        {name: info.estimate_us * 1e-6 * most / device.threads for name, info in kernels} for device in devices
    ]


def placement_problem(
    graph: CutGraph, devices: Sequence[CoreSet], kernels: Sequence[Seconds], requests: int
) -> PlacementProblem:
    """Return the problem of where each task runs, with so many requests under way on each device."""
    tasks = tuple(
        TaskNode(
            name_of(task),
            tuple(sum(_seconds(step, each) for step in task) for each in kernels),
            graph.memory(at, requests),
        )
        for at, task in enumerate(graph.tasks)
    )
    edges = (TaskEdge(source, target, size) for (source, target), size in sorted(graph.edges().items()))
    known = tuple(Device(device.name, {OTHER: 1.0}, 1.0, device.memory) for device in devices)
    return PlacementProblem(TaskGraph(tasks, tuple(edges)), Topology.uniform(known, HAND_OFF))


def without_cost(graph: CutGraph) -> int:
    """Return how many steps no estimate is known of: functions of the host, and what ONNX Runtime runs."""
    return sum(not step.kernels and not step.only_renames for task in graph.tasks for step in task)


def name_of(task: Sequence[GraphStep]) -> str:
    """Return what reports call a task: its first kernel."""
    kernels = [name for step in task for name in step.kernels]
    return kernels[0] if kernels else str(task[0].writes[0].name)


def _seconds(step: GraphStep, kernels: Seconds) -> float:
    return sum(kernels.get(name, 0.0) for name in step.kernels)
