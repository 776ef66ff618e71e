"""Chooses a plan: the methods that take the problem are tried until a plan is proven to be the best there is, and the
best is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from fusion.declined import Declined
from fusion.errors import LimitError
from placement.bounds import area_bound, lower_bound
from placement.check import why_not_valid
from placement.methods.exact import ExactProgram
from placement.methods.fastest import FastestDevice
from placement.methods.greedy import Greedy
from placement.methods.heft import Heft
from placement.methods.local_search import LocalSearch
from placement.methods.method import FoundPlan, Method
from placement.methods.random_placement import RandomPlacement
from placement.methods.segmented import SegmentedPlan
from placement.methods.splitting import Splitting
from placement.methods.stages import PipelineStages
from placement.methods.windows import WindowSearch
from placement.mixes import find_mix
from placement.optional import has_optional
from placement.plan import DevicePlan
from placement.problem import PlacementProblem

BASELINES: tuple[Method, ...] = (FastestDevice(), Greedy(), Heft(), RandomPlacement())
"""What other planners are compared with; the first is taken where nothing is better."""
_MIX = "mix of placements"
_MIX_SECONDS = 3.0
_LEAST_GAIN = 0.01
"""Part by which a mix must be faster than one placement for all requests."""
PROVEN = 1e-6
"""Part by which a plan that is called the best there is may be above the bound: HiGHS proves no more."""
_FIT_SECONDS = 20.0
"""For HiGHS to fit a model into memories that the simple methods cannot fit it into."""


@dataclass(frozen=True)
class PlanChoice:
    """A plan, and those that it was chosen from.

    Attributes:
        problem: What `plan` is a plan of: where `requests` of a stream have placements of their own, a copy of the
            model for each.
        method: That found `plan`.
        bound: Seconds of a request that no plan is below.
        others: What each method found that was tried and has one placement for all requests, by its name.
        declined: Why others found none.
    """

    problem: PlacementProblem
    plan: DevicePlan
    method: str
    bound: float
    others: Mapping[str, DevicePlan]
    declined: Mapping[str, str]
    requests: int = 1

    @property
    def seconds(self) -> float:
        """The latency of a request, or the time from one of a stream to the next."""
        return self.plan.seconds / self.requests

    @property
    def gap(self) -> float:
        """Part by which the plan is above the bound; 0 if it is proven to be the best."""
        return max(self.seconds / self.bound - 1.0, 0.0) if self.bound else 0.0


@dataclass
class _Tried:
    """What was found so far."""

    problem: PlacementProblem
    objective: str
    found: dict[str, FoundPlan] = field(default_factory=dict)
    declined: dict[str, str] = field(default_factory=dict)

    def run(self, method: Method) -> None:
        """Let `method` find a plan, if it takes the problem."""
        try:
            found = method.find(self.problem, self.objective)
        except Declined as reason:
            self.declined[method.name] = str(reason)
            return
        broken = why_not_valid(self.problem, found.plan)
        if broken:
            self.declined[method.name] = f"its plan is not valid: {broken}"
            return
        before = self.found.get(method.name)
        if before is None or found.plan.seconds < before.plan.seconds:
            self.found[method.name] = found

    def best(self) -> tuple[str, DevicePlan]:
        """Return the best plan and its method; of equal ones that which was tried first."""
        name = min(self.found, key=lambda name: self.found[name].plan.seconds)
        return name, self.found[name].plan

    @property
    def bound(self) -> float:
        """Seconds that no plan is below: proven by a method or, where that leaves a gap, by the problem alone."""
        proven = max(found.bound for found in self.found.values())
        return proven if self._reaches(proven) else max(proven, self._lower)

    @property
    def is_settled(self) -> bool:
        """Whether the best plan is proven to be the best there is, so that further methods would bring nothing."""
        return self._reaches(self.bound)

    def _reaches(self, bound: float) -> bool:
        return self.best()[1].seconds <= bound * (1 + PROVEN)

    @cached_property
    def _lower(self) -> float:
        return lower_bound(self.problem, self.objective)


def choose_plan(problem: PlacementProblem, objective: str, *, exact_seconds: float = 0.0) -> PlanChoice:
    """Return the best plan of all methods, which has one placement for all requests.

    Args:
        exact_seconds: How long HiGHS may look for the best plan of all; 0 for not at all.

    Raises:
        LimitError: No method fits the model into the memories.
        NotInstalledError: An exact plan is asked for, and HiGHS is not installed.
    """
    tried = _Tried(problem, objective)
    if not problem.tasks:
        tried.run(FastestDevice())  # the one plan there is
        return _choice(tried)
    for method in _methods():
        tried.run(method)
    if not tried.found and has_optional():
        tried.run(ExactProgram(seconds=_FIT_SECONDS))
    if not tried.found:
        raise LimitError(
            "no method found a plan that fits the model into the memories of the devices",
            why="; ".join([memory_sizes(problem), *(f"{name}: {reason}" for name, reason in tried.declined.items())]),
            hint="give devices with more memory",
        )
    for make in _improvements(tried, exact_seconds):
        if tried.is_settled:
            break
        tried.run(make())
    return _choice(tried)


def memory_sizes(problem: PlacementProblem) -> str:
    """Return what a model keeps, and what each device has."""
    room = ", ".join(f"{device.name} has {device.memory / 1e6:.3f} MB" for device in problem.topology.devices)
    return f"the model keeps {sum(problem.memory) / 1e6:.3f} MB, {room}"


def mix_requests(choice: PlanChoice) -> PlanChoice:
    """Return the choice for a stream whose requests may differ in their placements, found in a few seconds; `choice`
    where that is no faster, takes no time anyway, or HiGHS is not installed. Its bound is that of all of these."""
    if not has_optional() or not choice.seconds:
        return choice
    bound = area_bound(choice.problem)
    try:
        mix = find_mix(choice.problem, [plan.placement for plan in choice.others.values()], _MIX_SECONDS)
    except Declined as reason:
        return replace(choice, bound=bound, declined={**choice.declined, _MIX: str(reason)})
    bound = max(bound, mix.bound)
    if mix.period > choice.seconds * (1 - _LEAST_GAIN):
        return replace(choice, bound=bound)
    broken = why_not_valid(mix.problem, mix.plan)
    if broken:
        return replace(choice, bound=bound, declined={**choice.declined, _MIX: f"its plan is not valid: {broken}"})
    return replace(
        choice, problem=mix.problem, plan=mix.plan, method=_MIX, bound=bound, requests=mix.requests
    )


def _methods() -> Iterator[Method]:
    yield from BASELINES
    yield Heft(lookahead=True)
    yield PipelineStages()


def _improvements(tried: _Tried, exact_seconds: float) -> Iterator[Callable[[], Method]]:
    """Yield what makes methods that begin with the plans which were found before them, most with the best."""
    yield lambda: SegmentedPlan([found.plan for found in tried.found.values()])
    if has_optional():
        yield lambda: Splitting(tried.best()[1])
    yield lambda: LocalSearch(tried.best()[1])
    if has_optional():
        yield lambda: WindowSearch(tried.best()[1])
    if exact_seconds:
        yield lambda: ExactProgram(tried.best()[1], exact_seconds)


def _choice(tried: _Tried) -> PlanChoice:
    name, plan = tried.best()
    return PlanChoice(
        problem=tried.problem,
        plan=plan,
        method=name,
        bound=tried.bound,
        others={name: found.plan for name, found in tried.found.items()},
        declined=dict(tried.declined),
    )
