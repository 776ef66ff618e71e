"""The graph that is placed: tasks, what each takes on each device, and what they send each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placement.devices import Topology, Work


@dataclass(frozen=True)
class TaskNode:
    """One task.

    Attributes:
        name: For reports.
        seconds: What it takes on each device, in the order of the topology; infinite where a device cannot run it.
        memory: Bytes that it keeps where it runs: weights and results.
    """

    name: str
    seconds: tuple[float, ...]
    memory: float = 0.0


@dataclass(frozen=True)
class TaskEdge:
    """A result of one task that another reads.

    Attributes:
        source, target: Positions of the tasks; the source comes first.
        bytes: Size of the result. Edges of one source are one result: it goes to a device once.
    """

    source: int
    target: int
    bytes: float


@dataclass(frozen=True)
class TaskGraph:
    """A model as tasks.

    Attributes:
        tasks: Each comes after those that it reads.
        edges: At most one between two tasks.
    """

    tasks: tuple[TaskNode, ...]
    edges: tuple[TaskEdge, ...]


@dataclass(frozen=True)
class PlacedOperator:
    """A task before it is known which devices there are.

    Attributes:
        reads: Positions of the operators whose results it takes.
        weights: Bytes of its weights.
        result: Bytes of its result.
    """

    name: str
    work: Work
    reads: tuple[int, ...]
    weights: float
    result: float


def tasks_of(operators: Sequence[PlacedOperator], topology: Topology) -> TaskGraph:
    """Return what `operators` take on the devices of a topology, by the roofline of each."""
    tasks = tuple(
        TaskNode(
            operator.name,
            tuple(device.seconds(operator.work) for device in topology.devices),
            operator.weights + operator.result,
        )
        for operator in operators
    )
    edges = tuple(
        TaskEdge(source, target, operators[source].result)
        for target, operator in enumerate(operators)
        for source in sorted(set(operator.reads))
    )
    return TaskGraph(tasks, edges)
