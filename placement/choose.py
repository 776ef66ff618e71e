"""Chooses a plan: every method that takes the problem is tried, and the best plan is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

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
        others: What each method found that has one placement for all requests, by its name.
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

    def best(self) -> list[str]:
        """Return the methods, the best first; of equal ones that which was tried first."""
        return sorted(self.found, key=lambda name: self.found[name].plan.seconds)


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
            why="; ".join(f"{name}: {reason}" for name, reason in tried.declined.items()),
            hint="give devices with more memory",
        )
    tried.run(SegmentedPlan([found.plan for found in tried.found.values()]))
    if has_optional():
        tried.run(Splitting(tried.found[tried.best()[0]].plan))
    tried.run(LocalSearch(tried.found[tried.best()[0]].plan))
    if has_optional():
        tried.run(WindowSearch(tried.found[tried.best()[0]].plan))
    if exact_seconds:
        tried.run(ExactProgram(tried.found[tried.best()[0]].plan, exact_seconds))
    return _choice(tried)


def mix_requests(choice: PlanChoice, seconds: float = _MIX_SECONDS) -> PlanChoice:
    """Return the choice for a stream whose requests may differ in their placements, found in so many seconds; `choice`
    where that is no faster, takes no time anyway, or HiGHS is not installed. Its bound is that of all of these."""
    if not has_optional() or not choice.seconds:
        return choice
    bound = area_bound(choice.problem)
    try:
        mix = find_mix(choice.problem, [plan.placement for plan in choice.others.values()], seconds)
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


def _choice(tried: _Tried) -> PlanChoice:
    name = tried.best()[0]
    proven = max(found.bound for found in tried.found.values())
    return PlanChoice(
        problem=tried.problem,
        plan=tried.found[name].plan,
        method=name,
        bound=max(proven, lower_bound(tried.problem, tried.objective)),
        others={name: found.plan for name, found in tried.found.items()},
        declined=dict(tried.declined),
    )
