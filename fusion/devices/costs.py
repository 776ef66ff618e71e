"""What the tasks of a model take on each device, and what they send each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusion.devices.cut_graph import CutGraph, GraphStep
from fusion.devices.targets import DeviceTarget, OffloadDevice
from fusion.lowered import Lowered
from placement.devices import OTHER, Device, Link, Topology
from placement.problem import PlacementProblem
from placement.tasks import TaskEdge, TaskGraph, TaskNode

Seconds = Mapping[str, float]
"""What one call of each kernel takes."""
Links = Mapping[int, Link]
"""What copies between this process and the servers among the devices take, by their positions."""
HAND_OFF = Link(latency_us=60.0, gbs=8.0)
"""From one CPU to another of a process: a thread wakes the other, which reads what the first one's caches hold."""
PCI_EXPRESS = Link(latency_us=20.0, gbs=8.0)
"""From this process to a device beside the CPU: assumed, not measured. A CPU copies to pinned memory first, so that
fewer than the 25 GB/s of 16 lanes of the fourth generation remain."""


def estimates_of(lowered: Lowered) -> dict[str, float]:
    """Return what kernels take by the estimates of the backend that they are lowered for."""
    return {name: info.estimate_us * 1e-6 for name, info in lowered.kernels.items()}


def estimated(graph: CutGraph, devices: Sequence[DeviceTarget], host: Seconds) -> list[Seconds]:
    """Return what kernels take on each device before anything was measured there.

    Args:
        host: Of the CPU, with the most threads that a device has; with fewer the work is divided among these.
    """
    most = max(device.threads for device in devices)

    def of(device: DeviceTarget) -> Seconds:
        if isinstance(device, OffloadDevice):
            return estimates_of(graph.lowered)
        return {name: each * most / device.threads for name, each in host.items()}

    return list(map(of, devices))


def placement_problem(
    graph: CutGraph, devices: Sequence[DeviceTarget], kernels: Sequence[Seconds], links: Links, requests: int
) -> PlacementProblem:
    """Return the problem of where each task runs, with so many requests under way on each device.

    Servers are reached by `links`. Inputs of the model come from this process, and its results go there: a server is
    busy with that.
    """
    tasks = tuple(
        TaskNode(
            name_of(task),
            tuple(
                seconds_of(task, each)
                + (sum(map(links[k].seconds, graph.copies(at))) if k in links else 0.0)
                for k, each in enumerate(kernels)
            ),
            graph.memory(at, requests),
        )
        for at, task in enumerate(graph.tasks)
    )
    edges = (TaskEdge(source, target, size) for (source, target), size in sorted(graph.edges().items()))
    known = tuple(Device(device.name, {OTHER: 1.0}, 1.0, device.memory) for device in devices)
    ways = tuple(tuple(_way(links, source, target) for target in range(len(known))) for source in range(len(known)))
    return PlacementProblem(TaskGraph(tasks, tuple(edges)), Topology(known, ways))


def _way(links: Links, source: int, target: int) -> Link:
    """Return what copies between two devices take: from one server to another they come through this process."""
    used = [links[k] for k in (source, target) if k in links]
    if not used:
        return HAND_OFF
    return Link(sum(link.latency_us for link in used), 1.0 / sum(1.0 / link.gbs for link in used))


def without_cost(graph: CutGraph) -> int:
    """Return how many steps no estimate is known of: functions of the host, and what ONNX Runtime runs."""
    return sum(not step.kernels and not step.only_renames for task in graph.tasks for step in task)


def name_of(task: Sequence[GraphStep]) -> str:
    """Return what reports call a task: its first kernel."""
    kernels = [name for step in task for name in step.kernels]
    return kernels[0] if kernels else str(task[0].writes[0].name)


def seconds_of(task: Sequence[GraphStep], kernels: Seconds) -> float:
    """Return what the kernels of a task take."""
    return sum(kernels.get(name, 0.0) for step in task for name in step.kernels)
