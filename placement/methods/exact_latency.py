"""Placement and order of one request as an integer program.

    min T
    sum_k x_ik = 1                                       each task has one device
    sum_i m_i x_ik <= M_k                                memories
    sum_l w_ijkl = x_ik,  sum_k w_ijkl = x_jl            the way of edge ij: from k to l
    s_j >= s_i + sum_k p_ik x_ik + sum_kl c_ijkl w_ijkl  precedence
    o_ij + o_ji >= x_ik + x_jk - 1                       tasks of one device have an order, if no path has it
    s_j >= s_i + sum_k p_ik x_ik - (1 - o_ij) big        and the second waits for the first
    T >= s_i + sum_k (p_ik + tail_ik) x_ik               tail: the least time from its end on k to that of all

The ways are the transportation polytope: its linear relaxation is tighter than that of y_ijkl >= x_ik + x_jl - 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from placement.bounds import heads, tails
from placement.integer_program import IntegerProgram, ProgramSolution
from placement.problem import PlacementProblem
from placement.unordered import unordered_pairs


@dataclass(frozen=True)
class FixedPart:
    """What is settled before some tasks are placed.

    Attributes:
        placement: Devices of tasks that are placed, by task.
        ends: When those end.
        free: When each device is free.
        room: Bytes that are left on each device.
    """

    placement: Mapping[int, int]
    ends: Mapping[int, float]
    free: Sequence[float]
    room: Sequence[float]


@dataclass
class LatencyProgram:
    """The program of some tasks of a problem behind those that are settled.

    Attributes:
        tasks: Those that are placed, in the order of the graph.
        horizon: Seconds that the answer is known not to take more than.
        seconds, by_cpu: For the solver, as `IntegerProgram` has them.
    """

    problem: PlacementProblem
    tasks: Sequence[int]
    fixed: FixedPart
    horizon: float
    seconds: float
    gap: float = 1e-6
    by_cpu: bool = False
    _program: IntegerProgram = field(init=False)
    _end: int = field(init=False)
    _on: dict[tuple[int, int], int] = field(default_factory=dict, init=False)
    _start: dict[int, int] = field(default_factory=dict, init=False)
    _orders: list[tuple[int, int, int]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._program = IntegerProgram(self.seconds, self.gap, self.by_cpu)
        self._end = self._program.variable(0.0, self.horizon, cost=1.0)
        self._tails, self._heads = tails(self.problem), heads(self.problem)
        for task in self.tasks:
            self._place(task)
        self._limit_devices()
        for task in self.tasks:
            self._wait_for_inputs(task)
        self._order_devices()

    def _place(self, task: int) -> None:
        """Give `task` a device, a start behind what the device does already, and an end with what must follow."""
        program, seconds = self._program, self.problem.seconds[task]
        for k in self.problem.devices:
            self._on[task, k] = program.choice(seconds[k] < float("inf"))
        program.equal({self._on[task, k]: 1.0 for k in self.problem.devices}, 1.0)
        self._start[task] = start = program.variable(0.0, self.horizon)
        earliest = {k: -max(float(self._heads[task, k]), self.fixed.free[k]) for k in self.problem.devices}
        program.at_least({start: 1.0, **self._for_device(task, earliest)}, 0.0)
        whole = {k: -(seconds[k] + float(self._tails[task, k])) for k in self.problem.devices}
        program.at_least({self._end: 1.0, start: -1.0, **self._for_device(task, whole)}, 0.0)

    def _for_device(self, task: int, values: Mapping[int, float]) -> dict[int, float]:
        """Return the terms of what is `values[k]` if `task` is on device k; on others it is 0."""
        seconds = self.problem.seconds[task]
        return {self._on[task, k]: value for k, value in values.items() if seconds[k] < float("inf")}

    def _limit_devices(self) -> None:
        """Let what is on a device fit its memory, and its time: the rows on single tasks say nothing of their sum."""
        for k, room in enumerate(self.fixed.room):
            kept = {self._on[task, k]: self.problem.memory[task] / max(room, 1.0) for task in self.tasks}
            if sum(kept.values()) > min(room, 1.0):
                self._program.at_most(kept, min(room, 1.0))
            work: dict[int, float] = {}
            for task in self.tasks:
                work |= self._for_device(task, {k: -self.problem.seconds[task][k]})
            self._program.at_least({self._end: 1.0, **work}, self.fixed.free[k])

    def _wait_for_inputs(self, task: int) -> None:
        for producer, size in self.problem.producers[task]:
            pairs = product(self.problem.devices, repeat=2)
            copies = {(source, target): self.problem.copy_seconds(size, source, target) for source, target in pairs}
            if producer in self._start:
                self._wait_for(producer, task, copies)
            else:
                source, end = self.fixed.placement[producer], self.fixed.ends[producer]
                ready = {k: -end - copies[source, k] for k in self.problem.devices}
                self._program.at_least({self._start[task]: 1.0, **self._for_device(task, ready)}, 0.0)

    def _wait_for(self, producer: int, task: int, copies: Mapping[tuple[int, int], float]) -> None:
        program, devices = self._program, self.problem.devices
        ways = {way: program.variable(0.0, 1.0) for way in copies}
        for k in devices:
            program.equal({**{ways[k, other]: 1.0 for other in devices}, self._on[producer, k]: -1.0}, 0.0)
            program.equal({**{ways[other, k]: 1.0 for other in devices}, self._on[task, k]: -1.0}, 0.0)
        program.at_least(
            {**self._after(producer, task), **{ways[way]: -seconds for way, seconds in copies.items() if seconds}}, 0.0
        )

    def _after(self, first: int, second: int) -> dict[int, float]:
        """Return the terms of the start of one task less the end of another."""
        return {
            self._start[second]: 1.0,
            self._start[first]: -1.0,
            **self._for_device(first, {k: -each for k, each in enumerate(self.problem.seconds[first])}),
        }

    def _order_devices(self) -> None:
        program = self._program
        least_tail, least_head = self._tails.min(axis=1), self._heads.min(axis=1)
        for pair in unordered_pairs(self.problem, self.tasks):
            before = {each: program.choice() for each in (pair, pair[::-1])}
            for k in self.problem.devices:
                both = {self._on[task, k]: -1.0 for task in pair}
                program.at_least({**dict.fromkeys(before.values(), 1.0), **both}, -1.0)
            for (first, second), order in before.items():
                big = self.horizon - float(least_tail[first]) - float(least_head[second])
                program.at_least({**self._after(first, second), order: -big}, -big)
                self._orders.append((first, second, order))

    def solve(self, placement: Mapping[int, int], starts: Mapping[int, float]) -> ProgramSolution:
        """Return what the solver finds from a known plan of the tasks; nothing known where it is empty."""
        known: dict[int, float] = {}
        for task, device in placement.items():
            known[self._start[task]] = starts[task]
            known |= {self._on[task, k]: float(k == device) for k in self.problem.devices}
        for first, second, order in self._orders if placement else ():
            together = placement[first] == placement[second]
            known[order] = float(together and (starts[first], first) < (starts[second], second))
        return self._program.solve(known)

    def read(self, values: Sequence[float]) -> tuple[dict[int, int], dict[int, float]]:
        """Return the devices of the tasks, and their starts, from the values of a solution."""
        placement = {
            task: max(self.problem.devices, key=lambda k: values[self._on[task, k]]) for task in self.tasks
        }
        return placement, {task: values[self._start[task]] for task in self.tasks}
