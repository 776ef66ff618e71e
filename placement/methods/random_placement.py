"""Each task on a device drawn by chance."""

from __future__ import annotations

import random
from dataclasses import dataclass

from placement.memory_book import MemoryBook
from placement.methods.method import FoundPlan
from placement.problem import PlacementProblem
from placement.simulate import schedule


@dataclass(frozen=True)
class RandomPlacement:
    """Each task on any device that has room for it."""

    seed: int = 0
    name: str = "random"

    def find(self, problem: PlacementProblem, objective: str) -> FoundPlan:
        """Return the plan.

        Raises:
            Declined: What was drawn leaves no room for a task.
        """
        draw, book, placement = random.Random(self.seed), MemoryBook(problem), list[int]()
        for task in problem.tasks:
            placement.append(draw.choice(book.devices_for(task, problem)))
            book.take(task, placement[-1])
        return FoundPlan(schedule(problem, objective, placement))
