"""Mixed integer programs, row by row, solved by HiGHS."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from placement.optional import optional

INFINITY = math.inf


@dataclass(frozen=True)
class ProgramSolution:
    """What the solver found.

    Attributes:
        values: Of the variables, in their order; None where it found no solution.
        bound: What no solution is below.
        proven: Whether the solution is the best there is, or it is proven that there is none.
        duals: What a unit of each row is worth, of a program without integers.
    """

    values: Sequence[float] | None
    bound: float
    proven: bool
    duals: Sequence[float] = ()


@dataclass
class IntegerProgram:
    """A program that minimizes the sum of its variables times their costs.

    Attributes:
        seconds: After which the solver ends with the best it has.
        gap: Part of the optimum by which a solution that is called proven may be above the bound.
        by_cpu: Whether `seconds` are CPU time of the process, whatever else the machine does, and not of the clock.
    """

    seconds: float
    gap: float = 1e-6
    by_cpu: bool = False
    _costs: list[float] = field(default_factory=list, init=False)
    _lower: list[float] = field(default_factory=list, init=False)
    _upper: list[float] = field(default_factory=list, init=False)
    _integral: list[bool] = field(default_factory=list, init=False)
    _rows: list[tuple[Mapping[int, float], float, float]] = field(default_factory=list, init=False)

    def variable(
        self, lower: float = 0.0, upper: float = INFINITY, *, cost: float = 0.0, integral: bool = False
    ) -> int:
        """Add a variable and return its position."""
        self._costs.append(cost)
        self._lower.append(lower)
        self._upper.append(upper)
        self._integral.append(integral)
        return len(self._costs) - 1

    def choice(self, allowed: bool = True) -> int:
        """Add a variable that is 0 or 1, or 0 where 1 is not allowed, and return its position."""
        return self.variable(0.0, float(allowed), integral=True)

    def add_cost(self, column: int, cost: float) -> None:
        """Let the variable cost so much more."""
        self._costs[column] += cost

    def at_least(self, terms: Mapping[int, float], value: float) -> None:
        """Add the row: sum of coefficients times variables >= value."""
        self._rows.append((terms, value, INFINITY))

    def at_most(self, terms: Mapping[int, float], value: float) -> None:
        """Add the row: sum of coefficients times variables <= value."""
        self._rows.append((terms, -INFINITY, value))

    def equal(self, terms: Mapping[int, float], value: float) -> None:
        """Add the row: sum of coefficients times variables = value."""
        self._rows.append((terms, value, value))

    def solve(self, start: Mapping[int, float]) -> ProgramSolution:
        """Return the best solution found in time.

        Args:
            start: Values of variables, of a solution that is known.

        Raises:
            NotInstalledError: HiGHS is not installed.
        """
        highspy = optional("highspy")
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        # The machine may have other things to do, and one thread is the same again and again.
        solver.setOptionValue("threads", 1)
        if self.by_cpu:
            _end_at(solver, time.process_time() + self.seconds)
        else:
            solver.setOptionValue("time_limit", float(self.seconds))
        solver.setOptionValue("mip_rel_gap", float(self.gap))
        solver.passModel(self._model(highspy))
        if start:
            known = np.fromiter(start.keys(), np.int32), np.fromiter(start.values(), float)
            solver.setSolution(len(start), *known)
        solver.run()
        return _solution(solver, highspy)

    def _model(self, highspy: Any) -> Any:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self._costs), len(self._rows)
        model.col_cost_ = np.array(self._costs)
        model.col_lower_, model.col_upper_ = np.array(self._lower), np.array(self._upper)
        model.row_lower_ = np.array([lower for _, lower, _ in self._rows])
        model.row_upper_ = np.array([upper for _, _, upper in self._rows])
        types = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        model.integrality_ = [types[integral] for integral in self._integral]
        matrix = model.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.start_ = np.cumsum([0, *(len(terms) for terms, _, _ in self._rows)]).astype(np.int32)
        matrix.index_ = np.array([column for terms, _, _ in self._rows for column in terms], dtype=np.int32)
        matrix.value_ = np.array([value for terms, _, _ in self._rows for value in terms.values()], dtype=float)
        return model


def _end_at(solver: Any, cpu_s: float) -> None:
    """End the solver when the process has taken so much CPU time."""
    def look(event: Any) -> None:
        event.interrupt(time.process_time() >= cpu_s)

    solver.cbMipInterrupt += look
    solver.cbSimplexInterrupt += look


def _solution(solver: Any, highspy: Any) -> ProgramSolution:
    info, status = solver.getInfo(), solver.getModelStatus()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    ended = status in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible)
    solution = solver.getSolution()
    return ProgramSolution(
        values=list(solution.col_value) if found else None,
        bound=max(float(info.mip_dual_bound), 0.0) if found else 0.0,
        proven=ended,
        duals=list(solution.row_dual),
    )
