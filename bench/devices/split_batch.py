"""Data parallelism within one request: its images are divided among the devices, each piece a graph of its own.

Nothing but the simulated networks is divided so: the first dimension of all that they compute is the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement.bounds import area_bound, path_bounds
from placement.choose import PlanChoice, choose_plan
from placement.devices import Topology
from placement.problem import LATENCY, PlacementProblem
from placement.tasks import PlacedOperator, tasks_of


@dataclass(frozen=True)
class BatchSplit:
    """The plan of a divided request.

    Attributes:
        sizes: Images of each piece.
        choice: Of the graph of all pieces; its bound is that of a graph that is divided like this.
        bound: Seconds that no plan of any division is below.
    """

    sizes: tuple[int, ...]
    choice: PlanChoice
    bound: float


def piece_of(operators: Sequence[PlacedOperator], share: float) -> Iterator[PlacedOperator]:
    """Yield the operators for a share of the images: weights are read whole, all else is in proportion."""
    for each in operators:
        moved = (each.work.bytes - each.weights) * share + each.weights
        work = replace(each.work, flops=each.work.flops * share, bytes=moved)
        yield replace(each, work=work, result=each.result * share)


def split_batch(operators: Sequence[PlacedOperator], images: int, topology: Topology) -> BatchSplit:
    """Return the plan of a request of so many images in pieces such that, each whole on a device of its own, the last
    ends the soonest; operators of pieces may still move where that is better."""
    sizes = [size for size in _sizes(operators, images, topology) if size]
    joined = list[PlacedOperator]()
    for piece, size in enumerate(sizes):
        first = len(joined)
        joined += [
            replace(
                each,
                name=f"{each.name} of piece {piece + 1}",
                reads=tuple(read + first for read in each.reads),
                # Who has two pieces has the weights once; to count them twice fits all the same.
            )
            for each in piece_of(operators, size / images)
        ]
    problem = PlacementProblem(tasks_of(joined, topology), topology)
    return BatchSplit(tuple(sizes), choose_plan(problem, LATENCY), _bound(operators, images, topology))


def _sizes(operators: Sequence[PlacedOperator], images: int, topology: Topology) -> list[int]:
    """Return the images of each device."""
    pieces = [[each.work for each in piece_of(operators, size / images)] for size in range(1, images + 1)]
    takes = np.array([[0.0, *(sum(map(device.seconds, each)) for each in pieces)] for device in topology.devices])
    for limit in np.sort(takes, axis=None):
        most = [int((row <= limit).nonzero()[0].max()) for row in takes]
        if sum(most) >= images:
            break
    for device in takes[:, 1].argsort()[::-1]:  # what is too much is taken from the slowest
        most[device] -= min(most[device], sum(most) - images)
    return most


def _bound(operators: Sequence[PlacedOperator], images: int, topology: Topology) -> float:
    """Return the larger of what the path of one image takes, and of all work divided at will, weights read for
    nothing and kernels started for nothing."""
    one = PlacementProblem(tasks_of(list(piece_of(operators, 1.0 / images)), topology), topology)
    bare = replace(topology, devices=tuple(replace(device, start_us=0.0) for device in topology.devices))
    free = [replace(each, work=replace(each.work, bytes=each.work.bytes - each.weights)) for each in operators]
    return max(
        float(path_bounds(one).max()), area_bound(PlacementProblem(tasks_of(free, bare), bare))
    )
