"""What a method is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from placement.plan import DevicePlan
from placement.problem import PlacementProblem


@dataclass(frozen=True)
class FoundPlan:
    """What a method found.

    Attributes:
        plan: The plan.
        bound: Seconds that the method proved no plan to be below; 0 where it proves nothing.
    """

    plan: DevicePlan
    bound: float = 0.0


class Method(Protocol):
    """Finds plans.

    Attributes:
        name: For reports.
    """

    @property
    def name(self) -> str: ...

    def find(self, problem: PlacementProblem, objective: str) -> FoundPlan:
        """Return a valid plan for an objective.

        Raises:
            Declined: The method finds none, or takes no problem of this kind.
        """
        ...
