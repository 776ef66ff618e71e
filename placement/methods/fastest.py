"""Everything on one device."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusion.declined import Declined
from placement.methods.method import FoundPlan
from placement.problem import PlacementProblem
from placement.simulate import schedule


@dataclass(frozen=True)
class FastestDevice:
    """The whole model on the device that runs it fastest, of those that can hold it."""

    name: str = "fastest device"

    def find(self, problem: PlacementProblem, objective: str) -> FoundPlan:
        """Return the plan.

        Raises:
            Declined: No device can run all of it.
        """
        size = sum(problem.memory)
        alone = {k: sum(seconds[k] for seconds in problem.seconds) for k in problem.devices if size <= problem.room[k]}
        best = min(alone, key=lambda device: alone[device], default=None)
        if best is None or math.isinf(alone[best]):
            raise Declined("no device can hold and run all of the model")
        return FoundPlan(schedule(problem, objective, (best,) * len(problem.tasks)))
