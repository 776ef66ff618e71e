"""What the planner finds for a network, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.devices.grain import WorkGrain, grain_of
from bench.devices.networks import operators_of
from bench.devices.split_batch import split_batch
from fusion.declined import Declined
from placement.choose import BASELINES, PROVEN, choose_plan, mix_requests
from placement.devices import Topology
from placement.methods.exact import ExactProgram
from placement.plan import DevicePlan
from placement.problem import LATENCY, OBJECTIVES, PlacementProblem
from placement.tasks import tasks_of


@dataclass(frozen=True)
class PlanResult:
    """Plans of one network for one objective; times in seconds of a request.

    Attributes:
        found: What each method found.
        placed: The best plan in which each operator is on one device.
        placed_bound: That no such plan is below.
        plan: The best plan, which may divide the images of a request (latency) or place the requests of a stream each
            in its way (throughput).
        method: That found it.
        bound: That no plan is below.
        planning: CPU time of the planner for `placed`.
        more: CPU time for `plan` besides.
        exact: What HiGHS found from `placed`; None where it was not asked.
        proven: What HiGHS proved that no plan with each operator on one device is below; 0 where it was not asked.
        solving: CPU time of HiGHS.
        grain: Why plans gain no more.
    """

    network: str
    batch: int
    operators: int
    objective: str
    found: Mapping[str, float]
    placed: float
    placed_bound: float
    plan: float
    method: str
    bound: float
    planning: float
    more: float
    exact: float | None
    proven: float
    solving: float
    grain: WorkGrain

    @property
    def baseline(self) -> float:
        """The best of the simple methods."""
        return min(self.found[method.name] for method in BASELINES if method.name in self.found)

    @property
    def is_solved(self) -> bool:
        """Whether HiGHS found the best plan in its time."""
        return self.exact is not None and self.exact <= self.proven * (1 + PROVEN)


def measure(
    network: str, batch: int, topology: Topology, exact_seconds: float, objectives: Sequence[str] = OBJECTIVES
) -> Iterator[PlanResult]:
    """Yield what is found for each objective; with seconds of CPU time for HiGHS, what it finds then."""
    operators = operators_of(network, batch)
    problem = PlacementProblem(tasks_of(operators, topology), topology)
    grain = grain_of(problem)
    for objective in objectives:
        started = time.process_time()
        choice = choose_plan(problem, objective)
        placed = time.process_time()
        plan, method, bound = choice.seconds, choice.method, choice.bound
        if objective == LATENCY and batch > 1:
            split = split_batch(operators, batch, topology)
            bound = split.bound
            if split.choice.seconds < plan:
                plan, method = split.choice.seconds, f"{'+'.join(map(str, split.sizes))} images"
        elif objective != LATENCY:
            mixed = mix_requests(choice)
            plan, method, bound = mixed.seconds, mixed.method, mixed.bound
        divided = time.process_time()
        exact, proven = _exact(problem, objective, choice.plan, exact_seconds) if exact_seconds else (None, 0.0)
        placed_bound = max(choice.bound, proven)
        yield PlanResult(
            network=network,
            batch=batch,
            operators=len(problem.tasks),
            objective=objective,
            found={name: found.seconds for name, found in choice.others.items()},
            placed=choice.seconds,
            placed_bound=placed_bound,
            plan=plan,
            method=method,
            bound=placed_bound if objective == LATENCY and batch == 1 else bound,
            planning=placed - started,
            more=divided - placed,
            exact=exact,
            proven=proven,
            solving=time.process_time() - divided,
            grain=grain,
        )


def _exact(
    problem: PlacementProblem, objective: str, known: DevicePlan, seconds: float
) -> tuple[float | None, float]:
    """Return the best time that HiGHS finds, and its bound."""
    try:
        found = ExactProgram(known, seconds, by_cpu=True).find(problem, objective)
    except Declined:
        return None, 0.0
    return found.plan.seconds, found.bound
