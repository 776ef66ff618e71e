"""How busy a stream keeps devices and links, kept up to date while tasks move."""

from __future__ import annotations

from collections.abc import Sequence

from placement.problem import PlacementProblem

NOWHERE = -1
"""The device of a task that is not placed yet."""


class StreamLoads:
    """The loads of a placement that is being made or changed.

    Attributes:
        placement: The device of each task, or `NOWHERE`.
        busy: Seconds that a request takes of each resource: of the device k at k * devices + k, of the link from k to l
            at k * devices + l.
    """

    def __init__(self, problem: PlacementProblem, placement: Sequence[int] = ()) -> None:
        self._problem = problem
        self._count = len(problem.devices)
        self.placement = [NOWHERE] * len(problem.tasks)
        self.busy = [0.0] * self._count**2
        # How many consumers of each task are on each device: the result goes there once.
        self._readers = [[0] * self._count for _ in problem.tasks]
        for task, device in enumerate(placement):
            self.put(task, device)

    @property
    def period(self) -> float:
        """The load of the busiest."""
        return max(self.busy)

    def norm(self, power: int) -> float:
        """Return the norm of the loads that is near their maximum."""
        most = max(self.busy)
        return most * float(sum((load / most) ** power for load in self.busy)) ** (1 / power) if most else 0.0

    def put(self, task: int, device: int) -> None:
        """Place a task that is nowhere."""
        self.placement[task] = device
        self.busy[device * self._count + device] += self._problem.seconds[task][device]
        self._send(task, device, 1.0)
        for producer, _ in self._problem.producers[task]:
            readers = self._readers[producer]
            if not readers[device]:
                self._copy(producer, device, 1.0)
            readers[device] += 1

    def remove(self, task: int) -> None:
        """Take a task from where it is."""
        device = self.placement[task]
        for producer, _ in self._problem.producers[task]:
            readers = self._readers[producer]
            readers[device] -= 1
            if not readers[device]:
                self._copy(producer, device, -1.0)
        self._send(task, device, -1.0)
        self.busy[device * self._count + device] -= self._problem.seconds[task][device]
        self.placement[task] = NOWHERE

    def _send(self, task: int, source: int, sign: float) -> None:
        for target, readers in enumerate(self._readers[task]):
            if readers and target != source:
                self.busy[source * self._count + target] += sign * self._seconds(task, source, target)

    def _copy(self, producer: int, target: int, sign: float) -> None:
        source = self.placement[producer]
        if source not in (NOWHERE, target):
            self.busy[source * self._count + target] += sign * self._seconds(producer, source, target)

    def _seconds(self, task: int, source: int, target: int) -> float:
        return self._problem.copy_seconds(self._problem.sent[task], source, target)
