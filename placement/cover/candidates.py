"""The subgraphs that a backend which takes whole regions is asked about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placement.cover.parts import PartSets, RegionCandidate
from placement.cover.places import TakenOperators, alone_on_host
from placement.cover.problem import HOST, CoverGraph
from placement.cover.regions import move_groups

_ELSEWHERE = HOST + 1


def regions_around(
    graph: CoverGraph, small: CoverGraph, groups: Sequence[frozenset[int]], taken: TakenOperators
) -> list[RegionCandidate]:
    """Return what a backend is asked about: the regions of `groups`, of the operators of `graph`, which it takes whole;
    where it runs parts only, some of these that may be chosen together, and the groups around them. `small` is the
    graph of the groups."""
    if taken.parts is None:
        whole = frozenset(at for at, group in enumerate(groups) if group <= taken.operators)
        return [RegionCandidate(region) for region in candidate_regions(small, whole)]
    return PartSets(graph, small, groups, taken.parts).candidates()


def candidate_regions(graph: CoverGraph, taken: frozenset[int]) -> list[frozenset[int]]:
    """Return subgraphs of operators that are `taken`: each alone, the largest that no other waits for, and the parts of
    these between values that alone lead from one part to the next, such as the layers of a network."""
    alone = alone_on_host(graph)
    moved = move_groups(graph, alone, [operator in taken for operator in graph.operators], _ELSEWHERE)
    largest = [group.operators for group in moved if group.backend == _ELSEWHERE]
    between = (part for region in largest for part in _between_cuts(graph, region))
    return list(dict.fromkeys((*(frozenset({operator}) for operator in sorted(taken)), *between, *largest)))


def _between_cuts(graph: CoverGraph, region: frozenset[int]) -> Iterator[frozenset[int]]:
    """Yield the parts of a region: as operators are in an order in which they can run, none waits for itself."""
    part: list[int] = []
    open_values: dict[int, set[int]] = {}
    producers = {value: found.producer for value, found in enumerate(graph.values) if found.producer in region}
    made: dict[int, list[int]] = {}
    for value, producer in producers.items():
        if producer is not None:
            made.setdefault(producer, []).append(value)
    for operator in sorted(region):
        part.append(operator)
        for value in graph.reads[operator]:
            if value in open_values:
                open_values[value].discard(operator)
        for value in made.get(operator, ()):
            open_values[value] = set(graph.readers[value] & region) - {operator}
        open_values = {value: waiting for value, waiting in open_values.items() if waiting}
        if len(open_values) <= 1:
            yield frozenset(part)
            part = []
