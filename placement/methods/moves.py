"""Changes of a placement that local search tries."""

from __future__ import annotations

import random
from collections.abc import Sequence

from placement.problem import PlacementProblem

_LARGEST = 32
"""Tasks that move at once, and places that a task moves in the order; a move of more is rarely better, and several make
it too."""


class Moves:
    """Draws tasks and the device that they move to.

    Args:
        problem: What is placed.
        seed: Of what is drawn.
        grows: How likely a move of some tasks is to take another one along.
    """

    def __init__(self, problem: PlacementProblem, seed: int, grows: float) -> None:
        self._random = random.Random(seed)
        self._problem = problem
        self._grows = grows
        self._neighbours = [
            [other for other, _ in (*before, *after)]
            for before, after in zip(problem.producers, problem.consumers, strict=True)
        ]

    def draw(self, placement: Sequence[int], likely: Sequence[int] = ()) -> tuple[list[int], int]:
        """Return tasks that are on one device, and another: one task, neighbours in the graph, or in its order."""
        problem, draw = self._problem, self._random
        task = draw.choice(likely) if likely and draw.random() < 0.7 else draw.randrange(len(placement))
        source = placement[task]
        target = draw.choice([k for k in problem.devices if k != source])
        near = [placement[other] for other in self._neighbours[task] if placement[other] != source]
        if near and draw.random() < 0.6:
            # A task beside one that is elsewhere moves there more often than anywhere.
            target = draw.choice(near)
        size, most = 1, min(_LARGEST, max(2, len(placement) // 2))
        while size < most and draw.random() < self._grows:
            size += 1
        tasks = [task] if size == 1 else self._grow(task, size, placement)
        return [each for each in tasks if problem.seconds[each][target] < float("inf")], target

    def is_reorder(self) -> bool:
        """Return whether the next move is of the order, and not of devices."""
        return self._random.random() < 0.3

    def reorder(self, order: Sequence[int], task: int) -> list[int]:
        """Return `order` with `task` elsewhere between what it reads and what reads it."""
        found, draw = list(order), self._random
        position = found.index(task)
        before = {other for other, _ in self._problem.producers[task]}
        after = {other for other, _ in self._problem.consumers[task]}
        first, last = position, position
        reach = draw.randint(1, _LARGEST)
        while first > max(0, position - reach) and found[first - 1] not in before:
            first -= 1
        while last < min(len(found) - 1, position + reach) and found[last + 1] not in after:
            last += 1
        found.insert(draw.randint(first, last), found.pop(position))
        return found

    def _grow(self, task: int, size: int, placement: Sequence[int]) -> list[int]:
        source = placement[task]
        if self._random.random() < 0.5:
            run = range(task, min(task + size, len(placement)))
            return [each for each in run if placement[each] == source]
        found, seen = [task], {task}
        for each in found:
            for other in self._neighbours[each]:
                if len(found) < size and other not in seen and placement[other] == source:
                    seen.add(other)
                    found.append(other)
        return found

    def accepts(self, worse: float, temperature: float) -> bool:
        """Return whether a change that is `worse` is taken, as in simulated annealing (Kirkpatrick 1983)."""
        return worse <= 0 or (temperature > 0 and self._random.random() < 2.718281828 ** (-worse / temperature))
