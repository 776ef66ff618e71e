"""The best plan of one request, segment by segment: each is solved for the pairs of devices at its ends that a plan as
good as the known one may use."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fusion.declined import Declined
from placement.bounds import segment_bounds
from placement.methods.greedy import Greedy
from placement.methods.heft import Heft
from placement.methods.local_search import LocalSearch
from placement.methods.method import FoundPlan
from placement.plan import DevicePlan
from placement.problem import LATENCY, PlacementProblem
from placement.ready_order import ready_order
from placement.segments import Segment, segment_problem, shortest_ends
from placement.simulate import schedule_once

Solve = Callable[[PlacementProblem, DevicePlan, float], FoundPlan]
"""Returns the best plan of a problem from a known one, in so many seconds."""
_LEAST_S = 0.5
"""For a pair, when all time is used up: most take less."""
_VISITS = 300_000


@dataclass
class SegmentPrograms:
    """Solves a problem whose memories have room for any plan.

    Attributes:
        known: A plan of the whole, or nothing.
        seconds: For all programs, by the clock or of CPU time as `clock` has it.
    """

    problem: PlacementProblem
    segments: Sequence[Segment]
    known: DevicePlan | None
    seconds: float
    solve: Solve
    clock: Callable[[], float] = time.monotonic
    _lowest: list[np.ndarray] = field(default_factory=list, init=False)
    _found: dict[tuple[int, int, int], FoundPlan] = field(default_factory=dict, init=False)

    def find(self) -> FoundPlan:
        """Return the plan, and what none is below.

        Raises:
            Declined: None was found.
        """
        self._lowest = [segment_bounds(self.problem, segment) for segment in self.segments]
        behind = shortest_ends(self._lowest)
        ahead = shortest_ends([lowest.T for lowest in reversed(self._lowest)])[::-1]
        limit = (self.known.latency if self.known else np.inf) * (1 - 1e-9)
        wanted = [
            (at, int(k), int(end))
            for at, lowest in enumerate(self._lowest)
            for k, end in np.argwhere(behind[at][:, None] + lowest + ahead[at + 1] < limit)
        ]
        self._solve_all(wanted)
        lengths = [self._matrix(at, lambda found: found.plan.latency) for at in range(len(self.segments))]
        bounds = [self._matrix(at, lambda found: found.bound) for at in range(len(self.segments))]
        bound = min(float(shortest_ends(bounds)[-1].min()), self.known.latency if self.known else np.inf)
        plans = [plan for plan in (self._plan(lengths), self.known) if plan]
        if not plans:
            raise Declined("HiGHS found no plan in time")
        return FoundPlan(min(plans, key=lambda plan: plan.latency), bound)

    def _solve_all(self, wanted: Sequence[tuple[int, int, int]]) -> None:
        ends = self.clock() + self.seconds
        for done, (at, k, end) in enumerate(wanted):
            part = self._part(at, k, end)
            methods = (Heft(), Heft(lookahead=True), Greedy())
            known = min((each.find(part, LATENCY).plan for each in methods), key=lambda plan: plan.latency)
            known = LocalSearch(known, visits=_VISITS).find(part, LATENCY).plan
            left = (ends - self.clock()) / (len(wanted) - done)
            found = FoundPlan(known)
            if known.latency > self._lowest[at][k, end] * (1 + 1e-9):
                with contextlib.suppress(Declined):
                    found = self.solve(part, known, max(left, _LEAST_S))
            better = min(found.plan, known, key=lambda plan: plan.latency)
            self._found[at, k, end] = FoundPlan(better, max(found.bound, float(self._lowest[at][k, end])))

    def _part(self, at: int, k: int, end: int) -> PlacementProblem:
        segment = self.segments[at]
        has_end = segment.exit < len(self.problem.tasks)
        return segment_problem(
            self.problem, segment, k if segment.entry >= 0 else None, end if has_end else None
        )

    def _matrix(self, at: int, value: Callable[[FoundPlan], float]) -> np.ndarray:
        """Return a value of each pair that was solved, infinity of others."""
        found = np.full(self._lowest[at].shape, np.inf)
        for (where, k, end), each in self._found.items():
            if where == at:
                found[k, end] = value(each)
        return found

    def _plan(self, lengths: Sequence[np.ndarray]) -> DevicePlan | None:
        """Return the plan on the shortest path; None where there is none."""
        ends = shortest_ends(lengths)
        device = int(ends[-1].argmin())
        if not np.isfinite(ends[-1][device]):
            return None
        placement, starts, later = [0] * len(self.problem.tasks), [0.0] * len(self.problem.tasks), 0.0
        for at in reversed(range(len(self.segments))):
            before = int((ends[at] + lengths[at][:, device]).argmin())
            segment, plan = self.segments[at], self._found[at, before, device].plan
            skipped, later = int(segment.entry >= 0), float(ends[at][before])
            for task, where, start in zip(
                segment.tasks(self.problem), plan.placement[skipped:], plan.starts[skipped:], strict=True
            ):
                placement[task], starts[task] = where, later + start
            device = before
        return schedule_once(self.problem, placement, ready_order(self.problem, starts))
