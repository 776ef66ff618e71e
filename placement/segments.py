"""Segments of a graph: what lies between tasks that all others are before or behind, and that no result goes past.

Such a task waits for all before it, and all behind it wait for it: when it ends, every device is idle, and its result
is all that is read of what was. So what a segment takes hangs on the devices of the two tasks at its ends alone, and
the best plan of one request is a shortest path over these, if memories have room for any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from placement.problem import PlacementProblem
from placement.tasks import TaskEdge, TaskGraph, TaskNode


@dataclass(frozen=True)
class Segment:
    """Tasks that follow each other in the graph's order.

    Attributes:
        entry: The task that all of them wait for, which belongs to the segment before; -1 for the first.
        exit: The last of them, which waits for all others; the number of tasks where the last segment has none.
    """

    entry: int
    exit: int

    def tasks(self, problem: PlacementProblem) -> range:
        """The tasks of the segment, that at its end among them."""
        return range(self.entry + 1, min(self.exit + 1, len(problem.tasks)))


def segments_of(problem: PlacementProblem) -> list[Segment]:
    """Return the segments, in order: one where no task has all others before or behind it."""
    count = len(problem.tasks)
    reach, last_source = 0, max((task for task in problem.tasks if not problem.producers[task]), default=0)
    ends = [-1]
    for task in problem.tasks:
        # No edge goes past it, none before it is a result of the model, and none behind it an input.
        if reach <= task and last_source <= task:
            ends.append(task)
        reach = max(reach, max((consumer for consumer, _ in problem.consumers[task]), default=count))
    if ends[-1] != count - 1:
        ends.append(count)
    return [Segment(entry, end) for entry, end in pairwise(ends)]


def segment_problem(
    problem: PlacementProblem, segment: Segment, entry: int | None = None, end: int | None = None
) -> PlacementProblem:
    """Return the segment as a problem of its own, whose first task is its entry, if it has one: on the device `entry`,
    where it takes no time. Its last task is on the device `end`, if that is given."""
    first, tasks = max(segment.entry, 0), list[TaskNode]()
    for task in range(first, segment.tasks(problem).stop):
        node = problem.graph.tasks[task]
        if task == segment.entry:
            tasks.append(TaskNode(node.name, _only(problem, [0.0] * len(problem.devices), entry)))
        elif task == segment.exit:
            tasks.append(TaskNode(node.name, _only(problem, node.seconds, end), node.memory))
        else:
            tasks.append(node)
    edges = tuple(
        TaskEdge(producer - first, task - first, size)
        for task in segment.tasks(problem)
        for producer, size in problem.producers[task]
    )
    return PlacementProblem(TaskGraph(tuple(tasks), edges), problem.topology)


def _only(problem: PlacementProblem, seconds: Sequence[float], device: int | None) -> tuple[float, ...]:
    return tuple(seconds[k] if device in (None, k) else np.inf for k in problem.devices)


def shortest_ends(lengths: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return when each segment ends on each device by the shortest path, before the first 0: `lengths` are what
    segments take from the device of the entry (row) to that of the end (column)."""
    found = [np.zeros(len(lengths[0]))]
    for each in lengths:
        found.append((found[-1][:, None] + each).min(axis=0))
    return found
