"""A graph and the devices for it, in the form that methods compute with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from placement.devices import Link, Topology
from placement.tasks import TaskGraph

LATENCY, THROUGHPUT = "latency", "throughput"
OBJECTIVES = (LATENCY, THROUGHPUT)
"""What plans are made for: the time of one request, or the time between two of a stream."""


@dataclass(frozen=True)
class PlacementProblem:
    """A graph to be placed on the devices of a topology.

    Tasks and devices are known by their positions. A device runs one task at a time, a link carries one copy at a time
    where requests follow each other; within one request copies do not wait for each other.
    """

    graph: TaskGraph
    topology: Topology

    @property
    def tasks(self) -> range:
        """Positions of the tasks, each after those that it reads."""
        return range(len(self.graph.tasks))

    @property
    def devices(self) -> range:
        """Positions of the devices."""
        return range(len(self.topology.devices))

    @cached_property
    def seconds(self) -> tuple[tuple[float, ...], ...]:
        """What each task takes on each device."""
        return tuple(task.seconds for task in self.graph.tasks)

    @cached_property
    def memory(self) -> tuple[float, ...]:
        """Bytes that each task keeps."""
        return tuple(task.memory for task in self.graph.tasks)

    @cached_property
    def room(self) -> tuple[float, ...]:
        """Bytes that each device has."""
        return tuple(device.memory for device in self.topology.devices)

    @cached_property
    def producers(self) -> tuple[tuple[tuple[int, float], ...], ...]:
        """What each task reads: tasks, and the bytes of each."""
        found: list[list[tuple[int, float]]] = [[] for _ in self.tasks]
        for edge in self.graph.edges:
            found[edge.target].append((edge.source, edge.bytes))
        return tuple(map(tuple, found))

    @cached_property
    def consumers(self) -> tuple[tuple[tuple[int, float], ...], ...]:
        """What reads each task: tasks, and the bytes for each."""
        found: list[list[tuple[int, float]]] = [[] for _ in self.tasks]
        for edge in self.graph.edges:
            found[edge.source].append((edge.target, edge.bytes))
        return tuple(map(tuple, found))

    @cached_property
    def sent(self) -> tuple[float, ...]:
        """Bytes of each task's result."""
        return tuple(max((size for _, size in found), default=0.0) for found in self.consumers)

    @cached_property
    def latency(self) -> tuple[tuple[float, ...], ...]:
        """Seconds that a copy from a device to a device takes besides its bytes."""
        return self._links(lambda link: link.latency_us * 1e-6)

    @cached_property
    def per_byte(self) -> tuple[tuple[float, ...], ...]:
        """Seconds that a copy from a device to a device takes for each byte."""
        return self._links(lambda link: 1e-9 / link.gbs)

    def _links(self, value: Callable[[Link], float]) -> tuple[tuple[float, ...], ...]:
        rows = enumerate(self.topology.links)
        return tuple(tuple(0.0 if k == other else value(link) for other, link in enumerate(row)) for k, row in rows)

    def in_units(self, unit: float) -> PlacementProblem:
        """Return the problem with `unit` seconds as a second: solvers have absolute tolerances."""
        tasks = (
            replace(task, seconds=tuple(seconds / unit for seconds in task.seconds)) for task in self.graph.tasks
        )
        links = (
            tuple(Link(link.latency_us / unit, link.gbs * unit) for link in row) for row in self.topology.links
        )
        return PlacementProblem(
            replace(self.graph, tasks=tuple(tasks)), replace(self.topology, links=tuple(links))
        )

    def copy_seconds(self, size: float, source: int, target: int) -> float:
        """Return what a copy of `size` bytes from one device to another takes."""
        return self.latency[source][target] + size * self.per_byte[source][target]
