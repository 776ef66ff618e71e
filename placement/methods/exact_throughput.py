"""The placement of a stream as an integer program.

    min T
    sum_k x_ik = 1                          each task has one device
    sum_i m_i x_ik <= M_k                   memories
    r_ik >= x_jk for all j that read i      somebody on k reads i
    y_ikl <= x_ik,  sum_k y_ikl >= r_il - x_il   where it is not made, it comes from where it is: from k to l, once
    T >= sum_i p_ik x_ik                    devices
    T >= sum_i c_ikl y_ikl                  links

It is the throughput program of Tarnawski et al. (NeurIPS 2020), whose accelerators wait for their copies, with links
that copy while devices compute. With y_ikl >= x_ik + r_il - 1 in the place of its two rows, which divided tasks fulfil
with no copies, the linear relaxation says nothing of links.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from placement.integer_program import IntegerProgram, ProgramSolution
from placement.problem import PlacementProblem
from placement.simulate import Resource


@dataclass
class ThroughputProgram:
    """The program of a whole problem.

    Attributes:
        horizon: A period that is known to be possible.
        least: A period that is known not to be possible to be below.
        seconds, by_cpu: For the solver, as `IntegerProgram` has them.
        prices: Of a second of each device and link. With them the program is not that of the least period, but of the
            placement whose loads cost the least.
        fixed: Devices of tasks that stay where they are.
    """

    problem: PlacementProblem
    horizon: float
    least: float
    seconds: float
    gap: float = 1e-6
    by_cpu: bool = False
    prices: Mapping[Resource, float] | None = None
    fixed: Mapping[int, int] = field(default_factory=dict)
    _program: IntegerProgram = field(init=False)
    _period: int = field(init=False)
    _on: list[list[int]] = field(default_factory=list, init=False)
    _sent: dict[tuple[int, int, int], int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._program = IntegerProgram(self.seconds, self.gap, self.by_cpu)
        self._period = self._program.variable(self.least, self.horizon, cost=float(self.prices is None))
        for task in self.problem.tasks:
            self._on.append([
                self._program.choice(each < float("inf") and self.fixed.get(task, k) == k)
                for k, each in enumerate(self.problem.seconds[task])
            ])  # fmt: skip
            self._program.equal(dict.fromkeys(self._on[task], 1.0), 1.0)
        for task in self.problem.tasks:
            if self.problem.consumers[task]:
                self._send(task)
        for k, room in enumerate(self.problem.room):
            kept = {row[k]: size / max(room, 1.0) for row, size in zip(self._on, self.problem.memory, strict=True)}
            self._program.at_most(kept, min(room, 1.0))
            work = {row[k]: seconds[k] for row, seconds in zip(self._on, self.problem.seconds, strict=True)}
            self._limit((k, k), work)
        links: dict[tuple[int, int], dict[int, float]] = {}
        for (task, source, target), column in self._sent.items():
            seconds = self.problem.copy_seconds(self.problem.sent[task], source, target)
            links.setdefault((source, target), {})[column] = seconds
        for link, copies in links.items():
            self._limit(link, copies)

    def _limit(self, resource: Resource, terms: dict[int, float]) -> None:
        """Let the period be at least what these take, or let them cost their price."""
        possible = {column: seconds for column, seconds in terms.items() if seconds < float("inf")}
        if self.prices is None:
            self._program.at_least({self._period: 1.0, **{each: -seconds for each, seconds in possible.items()}}, 0.0)
        else:
            for column, seconds in possible.items():
                self._program.add_cost(column, seconds * self.prices[resource])

    def _send(self, task: int) -> None:
        program, on = self._program, self._on
        for target in self.problem.devices:
            read = program.variable(0.0, 1.0)
            for consumer, _ in self.problem.consumers[task]:
                program.at_least({read: 1.0, on[consumer][target]: -1.0}, 0.0)
            copies = dict[int, float]()
            for source in self.problem.devices:
                if source != target:
                    self._sent[task, source, target] = sent = program.variable(0.0, 1.0)
                    program.at_least({on[task][source]: 1.0, sent: -1.0}, 0.0)
                    copies[sent] = 1.0
            program.at_least({**copies, on[task][target]: 1.0, read: -1.0}, 0.0)

    def solve(self, placement: Sequence[int]) -> ProgramSolution:
        """Return what the solver finds from a known placement; from none if it is empty."""
        known = {
            column: float(k == device)
            for device, row in zip(placement, self._on, strict=False)
            for k, column in enumerate(row)
        }
        return self._program.solve(known)

    def read(self, values: Sequence[float]) -> list[int]:
        """Return the placement from the values of a solution."""
        return [max(self.problem.devices, key=lambda k: values[row[k]]) for row in self._on]
