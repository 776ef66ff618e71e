"""What was measured of placements, as records of the database."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from fusion.context import Context
from fusion.signature import TensorSpec
from placement.cover.problem import HOST, CoverGraph
from placement.cover.regions import PlacedSubgraph, place_operators
from tuning.decide import CandidateTimes
from tuning.known import Knowledge
from tuning.record import Record
from tuning.task import PLACEMENT, TuningTask

REGIONS = {"regions": 1}
"""The point of a record of all that one library takes."""


def placement_task(
    family: str, structure: str, inputs: Sequence[TensorSpec], ctx: Context, knowledge: Knowledge
) -> TuningTask:
    """Return the question what a model takes in a placement.

    Args:
        family: The placement, with the versions of the libraries in it.
        structure: A text of the model, without the values of its weights.
    """
    digest = hashlib.sha256(f"{ctx.precision}\n{structure}".encode()).hexdigest()
    tensors = tuple((spec.dtype, spec.extents) for spec in inputs)
    return TuningTask(PLACEMENT, family, digest, tensors, knowledge.environment)


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


Parts = Sequence[frozenset[int]] | None
"""What of a graph a backend runs as a subgraph each; None where it runs any operators together."""
_WITH = " with"
"""Behind an operator that a backend which runs parts only runs with an earlier one, whose position is the value."""


def point_of(groups: Sequence[PlacedSubgraph], parts: Callable[[int], Parts]) -> dict[str, int]:
    """Return a placement as the point of a record: the backend of each run of operators, by the first of them, and
    where a backend runs `parts` only the first operator of each, by the others."""
    where = {operator: group.backend for group in groups for operator in group.operators}
    runs = groupby(sorted(where), key=where.__getitem__)
    cuts = [sorted(group.operators) for group in groups if group.backend != HOST and parts(group.backend) is not None]
    return {
        **{str(next(operators)): backend for backend, operators in runs},
        **{f"{operator}{_WITH}": first for first, *others in cuts for operator in others},
    }


def backends_in(point: Mapping[str, int]) -> frozenset[int]:
    """Return the backends that the point of a record names."""
    return frozenset(backend for at, backend in point.items() if not at.endswith(_WITH))


def placement_at(
    point: Mapping[str, int], graph: CoverGraph, backends: int, parts: Callable[[int], Parts]
) -> list[PlacedSubgraph] | None:
    """Return the placement of a point of a record, neighbours of one of the first `backends` joined where that
    runs them together, otherwise as the `parts` of each; None where it is none of this graph, whoever wrote it."""
    try:
        starts = sorted((int(at), backend) for at, backend in point.items() if not at.endswith(_WITH))
        firsts = {int(at.removesuffix(_WITH)): first for at, first in point.items() if at.endswith(_WITH)}
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
        all_parts, goes = parts(backend), [group.backend == backend for group in groups]
        if all_parts is None:
            groups = place_operators(graph, groups, goes, backend, None)
            continue
        cut: dict[int, set[int]] = {}
        for group in itertools.compress(groups, goes):
            (operator,) = group.operators
            cut.setdefault(firsts.get(operator, operator), set()).add(operator)
        wanted = {frozenset(part) for part in cut.values()}
        groups = place_operators(graph, groups, goes, backend, sorted(wanted & {*all_parts}, key=min))
        if {group.operators for group in groups if group.backend == backend} != wanted:
            return None
    return groups
