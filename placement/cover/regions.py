"""Joins neighbouring subgraphs of one backend into larger ones, none of which waits for itself, or takes them apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placement.cover.problem import HOST, CoverGraph


@dataclass(frozen=True)
class PlacedSubgraph:
    """A subgraph, and who runs it.

    Attributes:
        operators: Positions.
        backend: Position of the backend.
    """

    operators: frozenset[int]
    backend: int


def move_groups(
    graph: CoverGraph, groups: Sequence[PlacedSubgraph], moved: Sequence[bool], backend: int
) -> list[PlacedSubgraph]:
    """Return `groups`, in an order in which they can run, of which those that are `moved` go to a `backend` that takes
    whole subgraphs, and all of that are joined as far as no two subgraphs then wait for each other.

    Args:
        graph: The model.
        groups: All of it.
        moved: Whether each group is moved.
        backend: Whose subgraphs are joined, those that were there before among them.
    """
    placed = [
        PlacedSubgraph(group.operators, backend if goes else group.backend)
        for group, goes in zip(groups, moved, strict=True)
    ]
    joined = _Quotient(graph, placed)
    joined.join(backend)
    return joined.in_order()


def place_operators(
    graph: CoverGraph,
    groups: Sequence[PlacedSubgraph],
    moved: Sequence[bool],
    backend: int,
    parts: Sequence[frozenset[int]] | None,
) -> list[PlacedSubgraph]:
    """Return `groups`, in an order in which they can run, of which those that are `moved` go to a `backend`: to one
    that takes whole subgraphs as `move_groups` says; of one that runs `parts` only, those which lie in what is moved
    are a subgraph each, the first of those with an operator in common, or that wait for each other; the other operators
    are the host's."""
    if parts is None:
        return move_groups(graph, groups, moved, backend)
    stays = [group for group, goes in zip(groups, moved, strict=True) if not goes]
    left = set(graph.operators).difference(*(group.operators for group in stays))
    alone = [PlacedSubgraph(frozenset({operator}), HOST) for operator in sorted(left)]
    found = _Quotient(graph, [*stays, *alone])
    places = {operator: len(stays) + at for at, operator in enumerate(sorted(left))}
    for part in parts:
        if part <= left and found.join_all({places[operator] for operator in part}, backend):
            left -= part
    return found.in_order()


def in_order(graph: CoverGraph, groups: Sequence[PlacedSubgraph]) -> list[PlacedSubgraph]:
    """Return groups, none of which waits for itself, in an order in which they can run."""
    return _Quotient(graph, groups).in_order()


class _Quotient:
    """The graph of groups."""

    def __init__(self, graph: CoverGraph, groups: Sequence[PlacedSubgraph]) -> None:
        self.groups = dict(enumerate(groups))
        home = {operator: index for index, group in self.groups.items() for operator in group.operators}
        self.after: dict[int, set[int]] = {index: set() for index in self.groups}
        self.before: dict[int, set[int]] = {index: set() for index in self.groups}
        for operator, index in home.items():
            for source in graph.sources[operator]:
                if home[source] != index:
                    self.after[home[source]].add(index)
                    self.before[index].add(home[source])

    def join(self, backend: int) -> None:
        """Join neighbours of `backend` until no more can be; what one join forbids another may allow."""
        while any([self._join_next(index) for index in list(self.groups) if self._is_at(index, backend)]):
            pass

    def join_all(self, indices: set[int], backend: int) -> bool:
        """Make some groups one of a backend unless that waits for itself then; return whether it does not."""
        behind = set[int]().union(*(self.after[index] for index in indices)) - indices
        waiting = list(behind)
        while waiting:
            following = self.after[waiting.pop()]
            if following & indices:
                return False
            waiting.extend(following - behind)
            behind |= following
        kept, *others = sorted(indices)
        for other in others:
            self._merge(kept, other)
        self.groups[kept] = PlacedSubgraph(self.groups[kept].operators, backend)
        return True

    def in_order(self) -> list[PlacedSubgraph]:
        """Return the groups in an order in which they can run, by the first operator where several can."""
        found: dict[int, PlacedSubgraph] = {}
        waiting = sorted(self.groups, key=lambda index: min(self.groups[index].operators))
        while waiting:
            ready = next(index for index in waiting if self.before[index] <= found.keys())
            waiting.remove(ready)
            found[ready] = self.groups[ready]
        return list(found.values())

    def _is_at(self, index: int, backend: int) -> bool:
        return index in self.groups and self.groups[index].backend == backend

    def _join_next(self, index: int) -> bool:
        """Join a group with the readers that can be joined with it; return whether there were any."""
        joined = False
        while index in self.groups:
            others = (
                other
                for other in sorted(self.after[index])
                if self.groups[other].backend == self.groups[index].backend and not self._is_around(index, other)
            )
            other = next(others, None)
            if other is None:
                break
            self._merge(index, other)
            joined = True
        return joined

    def _is_around(self, first: int, last: int) -> bool:
        """Return whether a path leads from `first` to `last` by way of others."""
        seen = set(self.after[first]) - {last}
        waiting = list(seen)
        while waiting:
            following = self.after[waiting.pop()]
            if last in following:
                return True
            waiting.extend(following - seen)
            seen |= following
        return False

    def _merge(self, kept: int, gone: int) -> None:
        group = self.groups.pop(gone)
        self.groups[kept] = PlacedSubgraph(self.groups[kept].operators | group.operators, group.backend)
        for links, back in ((self.after, self.before), (self.before, self.after)):
            for other in links.pop(gone):
                back[other].discard(gone)
                if other != kept:
                    back[other].add(kept)
                    links[kept].add(other)
