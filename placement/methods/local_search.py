"""Local search from a known plan, by simulated annealing over placements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusion.declined import Declined
from placement.critical import critical_tasks
from placement.loads import StreamLoads
from placement.memory_book import MemoryBook
from placement.methods.method import FoundPlan
from placement.methods.moves import Moves
from placement.methods.ranked import ranked_plan
from placement.plan import DevicePlan
from placement.problem import LATENCY, PlacementProblem
from placement.ready_order import ready_order
from placement.simulate import finish, schedule_once, schedule_stream

_HOTTEST = 0.002
"""Temperature at the beginning, as a part of the plan's time; it falls to 0 linearly. At 0.02 the best plan of most
runs was one of those that it began with."""
_GROWS_ONCE, _GROWS_STREAM = 0.9, 0.3
"""How likely a move is to take another task along: what one device does in a stream is a small part of what its
neighbour does, and to move much of it makes the other the busiest; a call is faster where whole paths move."""
_MOVES = 300
"""Moves for each task at most: small graphs are searched through before."""
_NORM = 12
"""Of the loads, in place of their maximum: a move that frees the second-busiest counts for little, but counts."""


@dataclass(frozen=True)
class LocalSearch:
    """Moves tasks between devices.

    Attributes:
        known: The plan that it begins with.
        visits: Tasks and edges that a run looks at, which decides how long it takes: about 3e-7 s each.
        seed: Of the moves that it tries.
        runs: Of calls, from the known plan, of which the best is taken: they end up to 5% apart. Those of streams end
            within 1% of each other, and there is one.
    """

    known: DevicePlan
    visits: int = 6_000_000
    seed: int = 0
    runs: int = 2
    name: str = "local search"

    def find(self, problem: PlacementProblem, objective: str) -> FoundPlan:
        """Return the best plan it comes by, which is the known one at worst.

        Raises:
            Declined: There is only one device.
        """
        if len(problem.devices) < 2 or not len(problem.tasks):
            raise Declined("there is nothing to move")
        if objective != LATENCY:
            return FoundPlan(_throughput(self, problem))
        plans = (_latency(self, problem, self.seed + run) for run in range(self.runs))
        return FoundPlan(min(plans, key=lambda plan: plan.latency))


@dataclass
class _LatencyState:
    """Devices and order of the tasks, the order always such that each task is behind what it reads."""

    problem: PlacementProblem
    plan: DevicePlan

    def __post_init__(self) -> None:
        self.placement = list(self.plan.placement)
        self.order: Sequence[int] = ready_order(self.problem, self.plan.starts)
        self.latency = self.plan.latency
        self.critical = critical_tasks(self.problem, self.plan)

    def accept(self, latency: float) -> None:
        """Take what was tried."""
        if latency != self.latency:
            self.plan = schedule_once(self.problem, self.placement, self.order)
            self.critical = critical_tasks(self.problem, self.plan)
        self.latency = latency


def _latency(search: LocalSearch, problem: PlacementProblem, seed: int) -> DevicePlan:
    """Change devices and order of the known plan."""
    moves = Moves(problem, seed, _GROWS_ONCE)
    state, best = _LatencyState(problem, search.known), search.known
    book = MemoryBook(problem, state.placement)
    steps = min(search.visits // (len(problem.tasks) + len(problem.graph.edges)), _MOVES * len(problem.tasks))
    for step in range(steps):
        tasks, target = moves.draw(state.placement, state.critical)
        before, order = [state.placement[task] for task in tasks], state.order
        reorders = moves.is_reorder()
        if not fits(problem, book, tasks, target):
            continue
        if reorders:
            state.order = moves.reorder(order, tasks[0])
        else:
            _move(state.placement, book, tasks, [target] * len(tasks))
        latency = finish(problem, state.placement, state.order)
        if moves.accepts(latency - state.latency, _HOTTEST * best.latency * (1 - step / steps)):
            state.accept(latency)
            best = min(best, state.plan, key=lambda plan: plan.latency)
        elif reorders:
            state.order = order
        else:
            _move(state.placement, book, tasks, before)
    return min(best, ranked_plan(problem, best.placement), key=lambda plan: plan.latency)


def fits(problem: PlacementProblem, book: MemoryBook, tasks: Sequence[int], device: int) -> bool:
    """Return whether `tasks`, which are elsewhere, fit on `device` together."""
    return bool(tasks) and sum(problem.memory[task] for task in tasks) <= book.left[device]


def _move(placement: list[int], book: MemoryBook, tasks: Sequence[int], targets: Sequence[int]) -> None:
    for task, target in zip(tasks, targets, strict=True):
        book.free(task, placement[task])
        book.take(task, target)
        placement[task] = target


def _throughput(search: LocalSearch, problem: PlacementProblem) -> DevicePlan:
    moves, book = Moves(problem, search.seed, _GROWS_STREAM), MemoryBook(problem, search.known.placement)
    loads = StreamLoads(problem, search.known.placement)
    best, least, value = list(loads.placement), loads.period, loads.norm(_NORM)
    visits, temperature = 0, _HOTTEST * least
    limit = min(search.visits, _MOVES * len(problem.tasks) * (8 + len(loads.busy) // 4 + 8))
    while visits < limit:
        tasks, target = moves.draw(loads.placement)
        visits += 8 + len(loads.busy) // 4 + 8 * len(tasks)
        if not fits(problem, book, tasks, target):
            continue
        source = loads.placement[tasks[0]]
        _move_load(loads, book, tasks, target)
        found = loads.norm(_NORM)
        if moves.accepts(found - value, temperature * (1 - visits / limit)):
            value = found
            if loads.period < least:
                best, least = list(loads.placement), loads.period
        else:
            _move_load(loads, book, tasks, source)
    plan = schedule_stream(problem, best)
    return min(search.known, plan, key=lambda each: each.period)


def _move_load(loads: StreamLoads, book: MemoryBook, tasks: Sequence[int], target: int) -> None:
    for task in tasks:
        book.free(task, loads.placement[task])
        loads.remove(task)
        loads.put(task, target)
        book.take(task, target)
