"""The integer program part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusion.declined import Declined
from placement.bounds import lower_bound
from placement.methods.exact import UNITS
from placement.methods.exact_latency import FixedPart, LatencyProgram
from placement.methods.exact_throughput import ThroughputProgram
from placement.methods.method import FoundPlan
from placement.methods.split_graph import split_graph
from placement.plan import DevicePlan
from placement.problem import LATENCY, THROUGHPUT, PlacementProblem
from placement.ready_order import ready_order
from placement.simulate import schedule_once, schedule_stream
from placement.tasks import TaskEdge, TaskGraph, TaskNode

_PART = 12
"""Tasks of a part whose order is planned: HiGHS takes 0.1 s for most with 3 devices, and seconds with 16 tasks."""
_PARTS = 40
"""Parts of a stream: as many as HiGHS places on 3 devices in a second."""
_LEAST_SECONDS = 0.02
"""In which HiGHS finds something for most parts."""


@dataclass(frozen=True)
class Splitting:
    """DiviML's heuristic (ICCAD 2023): the exact program on parts of the graph.

    For latency parts are placed one after the other, each with the least time of what follows as it is without
    contention; for throughput parts are placed as if each were a task.

    Attributes:
        known: A plan, which tells the scale of times.
        seconds: For all parts together.
    """

    known: DevicePlan
    seconds: float = 3.0
    name: str = "splitting"

    def find(self, problem: PlacementProblem, objective: str) -> FoundPlan:
        """Return the plan.

        Raises:
            NotInstalledError: HiGHS is not installed.
            Declined: A part has no place, or there are too many parts for the time.
        """
        unit = self.known.seconds / UNITS
        if not unit:
            return FoundPlan(self.known)
        return FoundPlan((self._latency if objective == LATENCY else self._throughput)(problem, unit))

    def _latency(self, problem: PlacementProblem, unit: float) -> DevicePlan:
        parts = split_graph(problem, _PART)
        if self.seconds / len(parts) < _LEAST_SECONDS:
            raise Declined(f"{len(parts)} parts are too many for {self.seconds:g} s")
        scaled, state = problem.in_units(unit), FixedPart({}, {}, (0.0,) * len(problem.devices), problem.room)
        starts: dict[int, float] = {}
        for part in parts:
            program = LatencyProgram(scaled, part, state, 2 * UNITS, self.seconds / len(parts), gap=0.01)
            solution = program.solve({}, {})
            if solution.values is None:
                raise Declined("HiGHS found no place for a part in time")
            placement, found = program.read(solution.values)
            starts |= found
            state = _behind(scaled, state, placement, found)
        order = ready_order(problem, [starts[task] for task in problem.tasks])
        return schedule_once(problem, [state.placement[task] for task in problem.tasks], order)

    def _throughput(self, problem: PlacementProblem, unit: float) -> DevicePlan:
        parts = split_graph(problem, max(1, -(-len(problem.tasks) // _PARTS)))
        if len(parts) > 2 * _PARTS:
            raise Declined(f"the graph has {len(parts)} parts, and HiGHS takes too long for more than {2 * _PARTS}")
        scaled = _contract(problem.in_units(unit), parts)
        program = ThroughputProgram(scaled, 2 * UNITS, lower_bound(scaled, THROUGHPUT), self.seconds, gap=0.005)
        solution = program.solve([])
        if solution.values is None:
            raise Declined("HiGHS found no placement of the parts in time")
        placement = dict[int, int]()
        for part, device in zip(parts, program.read(solution.values), strict=True):
            placement |= dict.fromkeys(part, device)
        return schedule_stream(problem, [placement[task] for task in problem.tasks])


def _behind(
    problem: PlacementProblem, state: FixedPart, placement: dict[int, int], starts: dict[int, float]
) -> FixedPart:
    """Return what is settled once a part is placed."""
    free, room = list(state.free), list(state.room)
    ends = {task: start + problem.seconds[task][placement[task]] for task, start in starts.items()}
    for task, device in placement.items():
        free[device] = max(free[device], ends[task])
        room[device] -= problem.memory[task]
    return FixedPart({**state.placement, **placement}, {**state.ends, **ends}, free, room)


def _contract(problem: PlacementProblem, parts: Sequence[Sequence[int]]) -> PlacementProblem:
    """Return the problem in which each part is a task; edges between two parts are one."""
    of = {task: index for index, part in enumerate(parts) for task in part}
    tasks = tuple(
        TaskNode(
            f"part {index}",
            tuple(sum(problem.seconds[task][k] for task in part) for k in problem.devices),
            sum(problem.memory[task] for task in part),
        )
        for index, part in enumerate(parts)
    )
    sent: dict[tuple[int, int], dict[int, float]] = {}
    for edge in problem.graph.edges:
        ends = of[edge.source], of[edge.target]
        if ends[0] != ends[1]:
            sent.setdefault(ends, {})[edge.source] = problem.sent[edge.source]
    edges = tuple(TaskEdge(*ends, sum(results.values())) for ends, results in sorted(sent.items()))
    return PlacementProblem(TaskGraph(tasks, edges), problem.topology)
