"""Streams whose requests have several placements: some run here, others there, each with stages of its own.

    min T
    sum_p q_p = 1                 the share of the requests that have placement p
    T >= sum_p q_p load_rp        each device and link r

The program has a column for each placement there is. Those that it wants are made as it wants them (Gilmore, Gomory
1961): at the prices that the rows have, of what a device's and a link's second is worth, the placement that costs the
least is the next; if none costs less than T, then T is the least period of any stream, and what the cheapest costs is
a bound that no stream is below.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fusion.declined import Declined
from placement.integer_program import IntegerProgram
from placement.methods.exact_throughput import ThroughputProgram
from placement.plan import DevicePlan
from placement.problem import PlacementProblem
from placement.simulate import Resource, loads, schedule_stream
from placement.tasks import TaskEdge, TaskGraph

_MOST_TASKS = 400
"""Of larger graphs HiGHS does not find the cheapest placement soon; of them those that are known are mixed."""
_CLOSE = 1e-3
"""Part of the period by which the bound may be below it."""
_MOST_REQUESTS = 24
"""Requests of a round, after which all repeats: their shares are multiples of its inverse."""
_WORTH = 5e-3
"""Part by which a longer round must be better."""


@dataclass(frozen=True)
class StreamMix:
    """A plan of a stream in which rounds of requests repeat.

    Attributes:
        problem: As many copies of the model as a round has requests; what several of them keep on a device is there
            once.
        plan: Of a whole round.
        requests: Of a round.
        bound: Seconds between two requests that no stream is below.
    """

    problem: PlacementProblem
    plan: DevicePlan
    requests: int
    bound: float

    @property
    def period(self) -> float:
        """Seconds between two requests, in the mean."""
        return self.plan.period / self.requests


def find_mix(problem: PlacementProblem, known: Sequence[Sequence[int]], seconds: float) -> StreamMix:
    """Return the best mix that is found in so many seconds, of the `known` placements and others.

    Raises:
        NotInstalledError: HiGHS is not installed.
        Declined: Nothing is known, or the memories have no room for what the mix keeps.
    """
    whole = [(k,) * len(problem.tasks) for k in problem.devices]
    master = _RestrictedMaster(problem, [tuple(each) for each in (*known, *whole) if _is_possible(problem, each)])
    if not master.placements:
        raise Declined("no placement fits the memories")
    ends = time.monotonic() + seconds
    shares, prices, period = master.solve()
    while len(problem.tasks) <= _MOST_TASKS and period > master.bound * (1 + _CLOSE):
        left = ends - time.monotonic()
        if left <= 0 or not master.add(prices, period, left):
            break
        shares, prices, period = master.solve()
    counts = _counts(master, shares)
    placements = [each for each, count in zip(master.placements, counts, strict=True) for _ in range(count)]
    if not _fits(problem, placements):
        raise Declined("the memories have no room for all that a mix of placements keeps")
    rounds = _rounds(problem, placements)
    plan = schedule_stream(rounds, [device for placement in placements for device in placement])
    return StreamMix(rounds, plan, len(placements), master.bound)


def _is_possible(problem: PlacementProblem, placement: Sequence[int]) -> bool:
    takes = (problem.seconds[task][device] for task, device in enumerate(placement))
    return all(map(math.isfinite, takes)) and _fits(problem, [placement])


def _fits(problem: PlacementProblem, placements: Sequence[Sequence[int]]) -> bool:
    """Return whether the memories have room for what these keep, of each task once on a device."""
    kept = [0.0] * len(problem.devices)
    for task, device in {each for placement in placements for each in enumerate(placement)}:
        kept[device] += problem.memory[task]
    return all(size <= room for size, room in zip(kept, problem.room, strict=True))


@dataclass
class _RestrictedMaster:
    """The restricted master program of column generation: the placements so far, and what each loads."""

    problem: PlacementProblem
    placements: list[tuple[int, ...]]
    bound: float = 0.0
    _loads: list[Mapping[Resource, float]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.placements = list(dict.fromkeys(self.placements))
        self._loads = [loads(self.problem, each) for each in self.placements]
        devices = self.problem.devices
        self.resources = [(k, other) for k in devices for other in devices]

    def period(self, counts: Sequence[float]) -> float:
        """Return what the busiest does for so many requests of each placement."""
        return max(
            sum(count * load.get(each, 0.0) for count, load in zip(counts, self._loads, strict=True))
            for each in self.resources
        )

    def solve(self) -> tuple[list[float], dict[Resource, float], float]:
        """Return the shares of the placements, the prices of resources, which sum to 1, and the period."""
        unit = min(max(load.values()) for load in self._loads)
        program = IntegerProgram(seconds=60.0)
        period = program.variable(cost=1.0)
        shares = [program.variable() for _ in self.placements]
        for resource in self.resources:
            terms = {
                column: -load.get(resource, 0.0) / unit for column, load in zip(shares, self._loads, strict=True)
            }
            program.at_least({period: 1.0, **terms}, 0.0)
        program.equal(dict.fromkeys(shares, 1.0), 1.0)
        solution = program.solve({})
        assert solution.values is not None
        prices = [max(price, 0.0) for price in solution.duals[: len(self.resources)]]
        total = sum(prices)
        priced = {each: price / total for each, price in zip(self.resources, prices, strict=True)}
        return [solution.values[column] for column in shares], priced, solution.values[period] * unit

    def add(self, prices: Mapping[Resource, float], period: float, seconds: float) -> bool:
        """Add the placement that costs the least, if it costs less than `period`, and note the bound."""
        scaled = self.problem.in_units(period / 100.0)
        program = ThroughputProgram(scaled, math.inf, 0.0, seconds, gap=_CLOSE / 4, prices=prices)
        solution = program.solve(self.placements[0])
        self.bound = max(self.bound, solution.bound * period / 100.0)
        if solution.values is None:
            return False
        found = tuple(program.read(solution.values))
        load = loads(self.problem, found)
        if found in self.placements or sum(prices[each] * load[each] for each in load) >= period * (1 - _CLOSE / 4):
            return False
        self.placements.append(found)
        self._loads.append(load)
        return True


def _counts(master: _RestrictedMaster, shares: Sequence[float]) -> list[int]:
    """Return how many requests of a round have each placement: the shortest round that is nearly the best."""
    best, least = list[int](), math.inf
    for requests in range(1, _MOST_REQUESTS + 1):
        counts = [int(share * requests) for share in shares]
        by_rest = sorted(range(len(shares)), key=lambda at: counts[at] - shares[at] * requests)
        for at in by_rest[: requests - sum(counts)]:
            counts[at] += 1
        period = master.period(counts) / requests
        if period < least * (1 - _WORTH):
            best, least = counts, period
    return best


def _rounds(problem: PlacementProblem, placements: Sequence[Sequence[int]]) -> PlacementProblem:
    """Return a problem with a copy of the model for each of `placements`."""
    tasks, edges, there = [], [], set[tuple[int, int]]()
    for request, placement in enumerate(placements):
        for task, (node, device) in enumerate(zip(problem.graph.tasks, placement, strict=True)):
            name = f"{node.name} of request {request + 1}" if len(placements) > 1 else node.name
            tasks.append(replace(node, name=name, memory=0.0 if (task, device) in there else node.memory))
            there.add((task, device))
        first = request * len(problem.tasks)
        edges += [TaskEdge(each.source + first, each.target + first, each.bytes) for each in problem.graph.edges]
    return PlacementProblem(TaskGraph(tuple(tasks), tuple(edges)), problem.topology)
