"""The best plan there is, or a bound on how far a plan is from it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import permutations

from fusion.declined import Declined
from placement.bounds import lower_bound
from placement.methods.exact_latency import FixedPart, LatencyProgram
from placement.methods.exact_segments import SegmentPrograms
from placement.methods.exact_throughput import ThroughputProgram
from placement.methods.method import FoundPlan
from placement.plan import DevicePlan
from placement.problem import LATENCY, THROUGHPUT, PlacementProblem
from placement.ready_order import ready_order
from placement.segments import segments_of
from placement.simulate import schedule, schedule_once, schedule_stream

UNITS = 100.0
"""What a known plan takes in the units that HiGHS computes in: its tolerances are absolute, 1e-6 and less."""
_SLACK = 1 + 1e-6
"""By which the horizon is above a known plan, so that rounding does not exclude it."""


@dataclass(frozen=True)
class ExactProgram:
    """HiGHS on the whole problem; of single requests, where memories have room for any plan, on its segments.

    Attributes:
        known: A plan to begin with; it decides how large the program's numbers are.
        seconds: After which the best plan so far is taken.
        by_cpu: Whether those are CPU time of the process.
        by_segments: Whether to take the graph apart where that can be done.
    """

    known: DevicePlan | None = None
    seconds: float = 600.0
    by_segments: bool = True
    by_cpu: bool = False
    name: str = "exact"

    def find(self, problem: PlacementProblem, objective: str) -> FoundPlan:
        """Return the plan, with the bound that HiGHS proved.

        Raises:
            NotInstalledError: HiGHS is not installed.
            Declined: It found nothing in time.
        """
        horizon = _longest(problem) if self.known is None else self.known.seconds
        unit = horizon / UNITS
        if not unit:
            return FoundPlan(schedule(problem, objective, self.known.placement if self.known else ()))
        if objective != LATENCY:
            return self._throughput(problem, unit)
        segments = segments_of(problem) if self.by_segments and sum(problem.memory) <= min(problem.room) else []
        if len(segments) < 2:
            return self._latency(problem, unit)
        clock = time.process_time if self.by_cpu else time.monotonic
        return SegmentPrograms(
            problem, segments, self.known, seconds=self.seconds, solve=self._solve_part, clock=clock
        ).find()

    def _latency(self, problem: PlacementProblem, unit: float) -> FoundPlan:
        scaled = problem.in_units(unit)
        nothing = FixedPart({}, {}, (0.0,) * len(problem.devices), problem.room)
        program = LatencyProgram(scaled, problem.tasks, nothing, UNITS * _SLACK, self.seconds, by_cpu=self.by_cpu)
        known = {} if self.known is None else dict(enumerate(self.known.placement))
        starts = {task: self.known.starts[task] / unit for task in known} if self.known else {}
        solution = program.solve(known, starts)
        if solution.values is None:
            raise Declined("HiGHS found no plan in time")
        placement, starts = program.read(solution.values)
        order = ready_order(problem, [starts[task] for task in problem.tasks])
        plan = schedule_once(problem, [placement[task] for task in problem.tasks], order)
        return FoundPlan(plan, solution.bound * unit)

    def _throughput(self, problem: PlacementProblem, unit: float) -> FoundPlan:
        scaled = problem.in_units(unit)
        least = lower_bound(scaled, THROUGHPUT)
        program = ThroughputProgram(scaled, UNITS * _SLACK, least, self.seconds, by_cpu=self.by_cpu)
        solution = program.solve(self.known.placement if self.known else ())
        if solution.values is None:
            raise Declined("HiGHS found no plan in time")
        return FoundPlan(schedule_stream(problem, program.read(solution.values)), solution.bound * unit)

    def _solve_part(self, problem: PlacementProblem, known: DevicePlan, seconds: float) -> FoundPlan:
        return ExactProgram(known, seconds, by_segments=False, by_cpu=self.by_cpu).find(problem, LATENCY)


def _longest(problem: PlacementProblem) -> float:
    """Return a time that every problem with a plan has a plan for: one thing after the other, each as slow as it is."""
    tasks = (max((each for each in seconds if each < float("inf")), default=0.0) for seconds in problem.seconds)
    copies = (
        problem.copy_seconds(size, *link)
        for size in problem.sent
        for link in permutations(problem.devices, 2)
    )
    return sum(tasks) + sum(copies)
