"""How full the memory of each device is while a placement is made."""

from __future__ import annotations

from collections.abc import Sequence

from fusion.declined import Declined
from placement.problem import PlacementProblem


class MemoryBook:
    """Bytes that are left on each device.

    Args:
        problem: Whose memories are filled.
        placement: What is there already.
    """

    def __init__(self, problem: PlacementProblem, placement: Sequence[int] = ()) -> None:
        self._memory = problem.memory
        self.left = list(problem.room)
        for task, device in enumerate(placement):
            self.take(task, device)

    def has_room(self, task: int, device: int) -> bool:
        """Return whether `task` fits on `device`."""
        return self._memory[task] <= self.left[device]

    def take(self, task: int, device: int) -> None:
        """Put `task` on `device`."""
        self.left[device] -= self._memory[task]

    def free(self, task: int, device: int) -> None:
        """Take `task` from `device`."""
        self.left[device] += self._memory[task]

    def devices_for(self, task: int, problem: PlacementProblem) -> list[int]:
        """Return the devices that can run `task` and have room for it.

        Raises:
            Declined: None has.
        """
        found = [k for k in problem.devices if problem.seconds[task][k] < float("inf") and self.has_room(task, k)]
        if not found:
            raise Declined(f"no device has room left for {problem.graph.tasks[task].name}")
        return found
