"""What was measured of placements, as records of the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from placement.cover.problem import HOST, CoverGraph
from placement.cover.regions import PlacedSubgraph, place_operators
from tuning.decide import CandidateTimes
from tuning.record import Record
from tuning.task import TuningTask

REGIONS = {"regions": 1}
"""The point of a record of all that one library takes."""


def placement_record(
    task: TuningTask, point: Mapping[str, int], found: CandidateTimes | None, now: float, *, wins: bool = False
) -> Record:
    """Return what the model took, placed by `point`; no runs where it takes no operator, or failed."""
    return Record(
        task=task,
        point=point,
        seconds=found.seconds if found else 0.0,
        spread=found.spread if found else 0.0,
        runs=found.runs if found else 0,
        default_s=found.default_s if found else 0.0,
        wins=wins,
        measured_at=now,
    )


def point_of(groups: Sequence[PlacedSubgraph]) -> dict[str, int]:
    """Return a placement as the point of a record: the backend of each run of operators, by the first of them."""
    where = {operator: group.backend for group in groups for operator in group.operators}
    runs = groupby(sorted(where), key=where.__getitem__)
    return {str(next(operators)): backend for backend, operators in runs}


Parts = Sequence[frozenset[int]] | None
"""What of a graph a backend runs as a subgraph each; None where it runs any operators together."""


def placement_at(
    point: Mapping[str, int], graph: CoverGraph, backends: int, parts: Callable[[int], Parts]
) -> list[PlacedSubgraph] | None:
    """Return the placement of a point of a record, neighbours of one of the first `backends` joined where that
    runs them together, otherwise as the `parts` of each; None where it is none of this graph, whoever wrote it."""
    try:
        starts = sorted((int(start), backend) for start, backend in point.items())
    except ValueError:
        return None
    if not starts or starts[0][0] != 0 or starts[-1][0] >= len(graph.operators):
        return None
    if any(not HOST <= backend <= backends for _, backend in starts):
        return None
    ends = [start for start, _ in starts[1:]] + [len(graph.operators)]
    groups = [
        PlacedSubgraph(frozenset({operator}), backend)
        for (start, backend), end in zip(starts, ends, strict=True)
        for operator in range(start, end)
    ]
    for backend in sorted({group.backend for group in groups} - {HOST}):
        groups = place_operators(graph, groups, [False] * len(groups), backend, parts(backend))
    return groups
