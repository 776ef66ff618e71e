"""Who runs which operators of a graph, as a compilation asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from placement.cover.problem import HOST, CoverGraph
from placement.cover.regions import PlacedSubgraph, place_operators


@dataclass(frozen=True)
class TakenOperators:
    """What a backend takes of a graph.

    Attributes:
        operators: Their positions.
        parts: Those that it runs, each as a subgraph of its own; together they are the operators. Of those with an
            operator in common one can run, the first where nobody chooses. None where it runs any of the operators
            together.
    """

    operators: frozenset[int]
    parts: tuple[frozenset[int], ...] | None = None

    @staticmethod
    def in_parts(parts: Sequence[frozenset[int]]) -> TakenOperators:
        """Return what a backend takes that runs these `parts` only."""
        return TakenOperators(frozenset[int]().union(*parts), tuple(parts))


Takes = Callable[[int], TakenOperators]
"""Returns what the backend of a position takes; to find out may take seconds."""


class Places(Protocol):
    """Says who runs what."""

    def __call__(self, graph: CoverGraph, takes: Takes) -> Sequence[PlacedSubgraph]:
        """Return all of `graph` as subgraphs in an order in which they can run."""
        ...


@dataclass(frozen=True)
class PlacesByOrder:
    """Gives each operator to the first of some backends that takes it, and what none takes to the host.

    Attributes:
        backends: Their positions.
    """

    backends: tuple[int, ...] = ()

    def __call__(self, graph: CoverGraph, takes: Takes) -> Sequence[PlacedSubgraph]:
        """See `Places`."""
        groups = alone_on_host(graph)
        for backend in self.backends:
            taken = takes(backend)
            moved = [group.backend == HOST and group.operators <= taken.operators for group in groups]
            groups = place_operators(graph, groups, moved, backend, taken.parts)
        return groups


@dataclass(frozen=True)
class GivenPlaces:
    """Has the subgraphs of one graph; of another all is the host's.

    Attributes:
        names: Of the operators of that graph.
        groups: All of it, in an order in which they can run.
    """

    names: tuple[str, ...]
    groups: tuple[PlacedSubgraph, ...]

    def __call__(self, graph: CoverGraph, takes: Takes) -> Sequence[PlacedSubgraph]:
        """See `Places`."""
        return self.groups if graph.names == self.names else alone_on_host(graph)


def alone_on_host(graph: CoverGraph) -> list[PlacedSubgraph]:
    """Return each operator of a graph as a subgraph of the host."""
    return [PlacedSubgraph(frozenset({operator}), HOST) for operator in graph.operators]
