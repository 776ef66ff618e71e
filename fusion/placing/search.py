"""Which subgraphs of a model run on which backend, by what they cost; nothing here measures or compiles.

First the cheapest cover by our kernels and regions of libraries, of which only those are asked for that it may have;
then, as what parts take does not add up, an evolution that asks for the whole, moves kernels to the library that has
the most regions, and takes those back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from placement.cover.candidates import regions_around
from placement.cover.evolve import Bits, Evolution, evolve
from placement.cover.lazy import find_measured_cover
from placement.cover.parts import RegionCandidate
from placement.cover.places import TakenOperators
from placement.cover.problem import HOST, CoverGraph, CoverProblem, MoveCost, SubgraphCandidate
from placement.cover.quotient import ordered_groups, quotient
from placement.cover.regions import PlacedSubgraph, in_order, place_operators

_MOST_TIMES_FASTER = 3.0
"""That a library is taken to be than our kernels until it is measured: it is asked about what could pay if it were."""
_LATER = 1e-3
"""By how much less of two libraries the one is taken to be faster that is slower on the whole: it is asked later."""
_STATES = 64
"""Of each size that the search follows: it runs once for each few measurements."""


@dataclass(frozen=True)
class KernelCost:
    """What our kernels take.

    Attributes:
        operators: That one kernel computes.
        seconds: Of a call of it in the network.
    """

    operators: frozenset[int]
    seconds: float


@dataclass(frozen=True)
class SearchedLibrary:
    """A library that regions may be moved to.

    Attributes:
        takes: What it takes.
        whole: What the model takes with all of these on it, over what it takes on our kernels; None where that is not
            known.
    """

    takes: TakenOperators
    whole: float | None = None


class PlacementCosts(Protocol):
    """Says what placements take."""

    def region(
        self, backend: int, operators: frozenset[int], parts: tuple[frozenset[int], ...] | None, ours: float
    ) -> float:
        """Return the seconds that a backend takes for some operators, or for `parts` of these, each by itself, and our
        kernels for the rest, with calls and with handing over what it reads and makes; all of them take our kernels
        `ours`. Infinite where it fails, or no more is to be measured."""
        ...

    def whole(self, groups: Sequence[PlacedSubgraph]) -> float:
        """Return what the whole model takes so, in any unit; infinite where it fails."""
        ...


def search_placement(
    graph: CoverGraph,
    kernels: Sequence[KernelCost],
    libraries: Mapping[int, SearchedLibrary],
    costs: PlacementCosts,
    goes_on: Callable[[], bool],
) -> Sequence[PlacedSubgraph]:
    """Return the best placement found, in an order in which it can run; all on the host where nothing else is better.

    Args:
        graph: The model.
        kernels: All of it as our kernels compute it; what takes no time has a kernel of its own.
        libraries: By their positions from 1 on.
        costs: Of parts and of the whole.
        goes_on: Asked before each measurement of the whole.
    """
    cover = find_cover_of(graph, kernels, libraries, costs)
    counts = Counter(group.backend for group in cover if group.backend != HOST)
    if not counts:
        return cover
    library = max(counts, key=counts.__getitem__)
    takes = libraries[library].takes
    there = [group.backend == library for group in cover]
    movable = [index for index, group in enumerate(cover) if there[index] or _is_taken(group, takes)]

    def moved(bits: Bits) -> Sequence[PlacedSubgraph]:
        goes = {index for index, bit in zip(movable, bits, strict=True) if bit}
        back = [
            replace(group, backend=HOST) if there[index] and index in goes else group
            for index, group in enumerate(cover)
        ]
        moves = [index in goes and not there[index] for index in range(len(cover))]
        return place_operators(graph, back, moves, library, takes.parts)

    starts = list(dict.fromkeys([(False,) * len(movable), tuple(not there[index] for index in movable)]))
    best = evolve(starts, lambda bits: costs.whole(moved(bits)), Evolution(evaluations=64), goes_on)
    return moved(best.bits)


def _is_taken(group: PlacedSubgraph, taken: TakenOperators) -> bool:
    """Return whether a group may move to a backend: all of it, or a part that the backend runs."""
    if taken.parts is None:
        return group.operators <= taken.operators
    return any(part <= group.operators for part in taken.parts)


def find_cover_of(
    graph: CoverGraph,
    kernels: Sequence[KernelCost],
    libraries: Mapping[int, SearchedLibrary],
    costs: PlacementCosts,
) -> list[PlacedSubgraph]:
    """Return the cheapest cover of `graph` by kernels and regions of libraries: see `search_placement`."""
    seconds = {operator: kernel.seconds / len(kernel.operators) for kernel in kernels for operator in kernel.operators}
    groups = ordered_groups(graph, [kernel.operators for kernel in kernels])
    small = quotient(graph, groups)
    ours = [sum(seconds[operator] for operator in group) for group in groups]
    candidates = [SubgraphCandidate(frozenset({place}), HOST, took) for place, took in enumerate(ours)]
    parts_of: list[tuple[frozenset[int], ...] | None] = [None for _ in candidates]
    known = dict(enumerate(ours))
    by_whole = sorted(libraries, key=lambda backend: libraries[backend].whole or math.inf)
    for later, backend in enumerate(by_whole):
        library = libraries[backend]
        takes = library.takes
        whole = frozenset(place for place, group in enumerate(groups) if group <= takes.operators)
        for each in regions_around(graph, small, groups, takes):
            took = sum(ours[place] for place in each.groups)
            if not took:
                continue
            least = took / _MOST_TIMES_FASTER * (1.0 + _LATER * (later + _share_left(each, groups)))
            # To compile all of it twice more would take long.
            if each.parts is None and each.groups == whole and library.whole is not None:
                known[len(candidates)] = max(took + (library.whole - 1.0) * sum(ours), least)
            candidates.append(SubgraphCandidate(each.groups, backend, least))
            parts_of.append(each.parts)
    nothing = MoveCost()  # a region's own time has what it takes to hand over
    backends = 1 + max(libraries, default=HOST)
    problem = CoverProblem(small, tuple(candidates), ((nothing,) * backends,) * backends, (0.0,) * backends)

    def below(region: frozenset[int]) -> frozenset[int]:
        return frozenset(operator for place in region for operator in groups[place])

    def measure(index: int) -> float:
        each = candidates[index]
        took = sum(ours[place] for place in each.operators)
        return costs.region(each.backend, below(each.operators), parts_of[index], took)

    found = find_measured_cover(problem, measure, known, _STATES)
    assert math.isfinite(found.cover.seconds)
    chosen = ((candidates[index], parts_of[index]) for index in found.cover.chosen)
    placed = (_placed(below(each.operators), each.backend, parts) for each, parts in chosen)
    return in_order(graph, [group for groups in placed for group in groups])


def _placed(
    operators: frozenset[int], backend: int, parts: tuple[frozenset[int], ...] | None
) -> Iterator[PlacedSubgraph]:
    """Yield what runs some operators: a backend all of them, or `parts`, and the host the others."""
    yield from (PlacedSubgraph(part, backend) for part in ((operators,) if parts is None else parts))
    rest = () if parts is None else sorted(operators.difference(*parts))
    yield from (PlacedSubgraph(frozenset({operator}), HOST) for operator in rest)


def _share_left(candidate: RegionCandidate, groups: Sequence[frozenset[int]]) -> float:
    """Return which share of a candidate's operators the host runs: of those around the same kernels the one is asked
    for first that leaves it the fewest, and of these that of the fewest calls."""
    if candidate.parts is None:
        return 0.0
    size = sum(len(groups[place]) for place in candidate.groups)
    left = size - sum(map(len, candidate.parts))
    return (left + 0.5 * len(candidate.parts) / size) / size
