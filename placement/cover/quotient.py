"""The graph of groups of operators, each of which is one operator of it: a cover of it is one of the graph below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from placement.cover.problem import CoverGraph


def ordered_groups(graph: CoverGraph, groups: Iterable[frozenset[int]]) -> list[frozenset[int]]:
    """Return `groups`, which together are the graph, in an order in which they can run; those that wait for each other
    are taken apart."""
    found = [group for group in groups if group]
    while True:
        home = {operator: index for index, group in enumerate(found) for operator in group}
        before = {
            index: {home[source] for operator in group for source in graph.sources[operator]} - {index}
            for index, group in enumerate(found)
        }
        try:
            return [found[index] for index in TopologicalSorter(before).static_order()]
        except CycleError as error:
            _, nodes = error.args
            circle = set(nodes)
            kept = [group for index, group in enumerate(found) if index not in circle]
            found = [*kept, *(frozenset({operator}) for index in circle for operator in found[index])]


def quotient(graph: CoverGraph, groups: Sequence[frozenset[int]]) -> CoverGraph:
    """Return the graph of `groups`, which are in an order in which they can run; values keep their positions."""
    home = {operator: index for index, group in enumerate(groups) for operator in group}

    def made_outside(value: int, group: frozenset[int]) -> bool:
        return graph.values[value].producer not in group

    reads = tuple(
        tuple(sorted({value for each in group for value in graph.reads[each] if made_outside(value, group)}))
        for group in groups
    )
    values = tuple(
        value if value.producer is None else replace(value, producer=home[value.producer]) for value in graph.values
    )
    return CoverGraph(reads, values)
