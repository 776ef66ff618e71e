"""A session that measures nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuning.decide import CandidateTimes, Decision
from tuning.experiment import Experiment
from tuning.measuring_session import Results


@dataclass
class Answers:
    """A session that says which candidate wins."""

    candidate: int
    asked: list[Experiment] = field(default_factory=list)

    def run(self, experiment: Experiment) -> Results:
        self.asked.append(experiment)
        times = tuple(CandidateTimes(index, 1e-6 * (2 - index), 0.0, 20, 2e-6) for index in range(2))
        return Results([Decision(self.candidate, 1e-6, 2e-6, 2, times)], 2.0, 1.0)
