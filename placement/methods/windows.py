"""Large neighbourhood search for streams: some tasks at a time are placed anew by the exact program, the rest stays."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fusion.declined import Declined
from placement.bounds import lower_bound
from placement.methods.exact import UNITS
from placement.methods.exact_throughput import ThroughputProgram
from placement.methods.method import FoundPlan
from placement.plan import DevicePlan
from placement.problem import THROUGHPUT, PlacementProblem
from placement.simulate import loads, schedule_stream

_MOST_TASKS = 400
"""For larger graphs, writing the program takes as long as solving it."""

_SIZE = 24
"""The number of tasks that are placed anew at a time."""


@dataclass(frozen=True)
class WindowSearch:
    """Places neighbours of a task of the busiest device anew, again and again (Shaw 1998).

    Attributes:
        known: The plan that it begins with.
        seconds: For all programs.
    """

    known: DevicePlan
    seconds: float = 2.0
    name: str = "windows"

    def find(self, problem: PlacementProblem, objective: str) -> FoundPlan:
        """Return the best plan it comes by, which is the known one at worst.

        Raises:
            NotInstalledError: HiGHS is not installed.
            Declined: The objective is not throughput, or the graph is too large.
        """
        unit = self.known.period / UNITS
        if objective != THROUGHPUT or len(problem.tasks) > _MOST_TASKS or not unit:
            raise Declined(f"windows are for streams of requests, and for graphs of up to {_MOST_TASKS} tasks")
        scaled = problem.in_units(unit)
        least, draw = lower_bound(scaled, THROUGHPUT), random.Random(0)
        placement, period = list(self.known.placement), self.known.period
        ends = time.monotonic() + self.seconds
        while period / unit > least * (1 + 1e-4) and (left := ends - time.monotonic()) > 0:
            free = self._window(problem, placement, draw)
            fixed = {task: device for task, device in enumerate(placement) if task not in free}
            program = ThroughputProgram(scaled, period / unit * (1 + 1e-6), least, left, gap=1e-4, fixed=fixed)
            solution = program.solve(placement)
            if solution.values is not None:
                found = program.read(solution.values)
                placement, period = found, max(loads(problem, found).values())
            if len(free) == len(placement):
                break
        return FoundPlan(min(self.known, schedule_stream(problem, placement), key=lambda plan: plan.period))

    def _window(self, problem: PlacementProblem, placement: Sequence[int], draw: random.Random) -> set[int]:
        if len(placement) <= _SIZE:
            return set(problem.tasks)
        busy = loads(problem, placement)
        busiest = max(busy, key=lambda resource: busy[resource])
        likely = [task for task in problem.tasks if placement[task] in busiest]
        found = [draw.choice(likely), *draw.sample(problem.tasks, _SIZE // 4)]
        seen = set(found)
        for task in found:
            for other, _ in (*problem.producers[task], *problem.consumers[task]):
                if len(found) < _SIZE and other not in seen:
                    seen.add(other)
                    found.append(other)
        return seen
