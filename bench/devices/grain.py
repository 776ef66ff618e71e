"""How coarse a network is for its devices, beside what copies between them take: why plans gain no more."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from placement.bounds import area_bound, path_bounds
from placement.problem import PlacementProblem


@dataclass(frozen=True)
class WorkGrain:
    """What a problem says of the gain by several devices before any plan is made; times in seconds.

    Attributes:
        path: The longest path with its copies, each task on the device that is best for it: no call is faster.
        area: All work divided at will, with no copies: no stream is faster.
        kernel: Median of the tasks, each on its fastest device.
        copy: Median of the results on their way to another device, each by its fastest link.
        dear: Share of the results whose copy takes longer than the task that makes them: what reads one elsewhere
            begins later than if both ran one after the other.
    """

    path: float
    area: float
    kernel: float
    copy: float
    dear: float


def grain_of(problem: PlacementProblem) -> WorkGrain:
    """Return it of a problem with several devices and edges."""
    kernels = [min(seconds) for seconds in problem.seconds]
    links = [(k, other) for k in problem.devices for other in problem.devices if k != other]
    read = [task for task in problem.tasks if problem.consumers[task]]
    copies = {task: min(problem.copy_seconds(problem.sent[task], *link) for link in links) for task in read}
    return WorkGrain(
        path=float(path_bounds(problem).max()),
        area=area_bound(problem),
        kernel=statistics.median(kernels),
        copy=statistics.median(copies.values()),
        dear=sum(copies[task] > kernels[task] for task in read) / len(read),
    )
