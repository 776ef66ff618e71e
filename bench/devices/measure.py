"""What the planner finds for a network, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench.devices.networks import operators_of
from fusion.declined import Declined
from placement.choose import BASELINES, choose_plan
from placement.devices import Topology
from placement.methods.exact import ExactProgram
from placement.plan import DevicePlan
from placement.problem import OBJECTIVES, PlacementProblem
from placement.tasks import tasks_of


@dataclass(frozen=True)
class PlanResult:
    """Plans of one network for one objective; times in seconds.

    Attributes:
        found: What each method found.
        plan: The plan that was chosen.
        method: That found it.
        bound: That no plan is below.
        planning: CPU time of the planner.
        exact: What HiGHS found from there; None where it was not asked.
        solving: CPU time of HiGHS.
    """

    network: str
    batch: int
    operators: int
    objective: str
    found: Mapping[str, float]
    plan: float
    method: str
    bound: float
    planning: float
    exact: float | None
    solving: float

    @property
    def baseline(self) -> float:
        """The best of the simple methods."""
        return min(self.found[method.name] for method in BASELINES if method.name in self.found)


def measure(network: str, batch: int, topology: Topology, exact_seconds: float) -> Iterator[PlanResult]:
    """Yield what is found for each objective; with a time for HiGHS, what it finds then."""
    problem = PlacementProblem(tasks_of(operators_of(network, batch), topology), topology)
    for objective in OBJECTIVES:
        started = time.process_time()
        choice = choose_plan(problem, objective)
        planning = time.process_time() - started
        exact, bound = _exact(problem, objective, choice.plan, exact_seconds) if exact_seconds else (None, 0.0)
        yield PlanResult(
            network=network,
            batch=batch,
            operators=len(problem.tasks),
            objective=objective,
            found={name: plan.seconds for name, plan in choice.others.items()},
            plan=choice.plan.seconds,
            method=choice.method,
            bound=max(choice.bound, bound),
            planning=planning,
            exact=exact,
            solving=time.process_time() - started - planning,
        )


def _exact(
    problem: PlacementProblem, objective: str, known: DevicePlan, seconds: float
) -> tuple[float | None, float]:
    """Return the best time that HiGHS finds, and its bound."""
    try:
        found = ExactProgram(known, seconds).find(problem, objective)
    except Declined:
        return None, 0.0
    return found.plan.seconds, found.bound
