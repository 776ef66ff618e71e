"""Parts with operators in common are all candidates: a long one hides no shorter one, and one of two is chosen."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

import pytest

from fusion.placing.records import placement_at, point_of
from fusion.placing.search import KernelCost, SearchedLibrary, find_cover_of
from placement.cover.check import why_not_cover
from placement.cover.parts import PartSets
from placement.cover.places import PlacesByOrder, TakenOperators
from placement.cover.problem import HOST, CoverGraph, CoverValue
from placement.cover.quotient import ordered_groups, quotient
from placement.cover.regions import PlacedSubgraph
from tests.placing.test_search import drawn

LIBRARY = 1


def chain(size: int) -> CoverGraph:
    values = (CoverValue(1.0), *(CoverValue(1.0, at, at == size - 1) for at in range(size)))
    return CoverGraph(tuple((at,) for at in range(size)), values, tuple(f"v{at}" for at in range(size)))


@dataclass
class GivenCosts:
    """What sets of parts take with the kernels around them; of others, as a share of what our kernels take, a drawn
    number above what the search takes a library to need at least."""

    known: dict[frozenset[frozenset[int]], float] = field(default_factory=dict)
    seed: int = 0

    def region(
        self, backend: int, operators: frozenset[int], parts: tuple[frozenset[int], ...] | None, ours: float
    ) -> float:
        assert parts is not None
        assert all(part <= operators for part in parts)
        key = frozenset(parts)
        if self.known:
            return self.known.get(key, math.inf)
        drawn_from = random.Random(f"{self.seed} {sorted(operators)} {sorted(map(sorted, parts))}")
        return ours * drawn_from.uniform(0.4, 1.3)

    def whole(self, groups: Sequence[PlacedSubgraph]) -> float:
        raise AssertionError


def found_there(
    graph: CoverGraph, kernels: Sequence[KernelCost], parts: Sequence[frozenset[int]], costs: GivenCosts
) -> list[PlacedSubgraph]:
    takes = TakenOperators.in_parts(tuple(parts))
    groups = find_cover_of(graph, kernels, {LIBRARY: SearchedLibrary(takes)}, costs)
    assert why_not_cover(graph, [group.operators for group in groups]) == ""
    again = placement_at(point_of(groups, lambda _: takes.parts), graph, 1, lambda _: takes.parts)
    assert again is not None
    there = [group for group in groups if group.backend == LIBRARY]
    assert {*there} == {group for group in again if group.backend == LIBRARY}
    return there


def sets(*parts: Sequence[int]) -> list[frozenset[int]]:
    return [frozenset(part) for part in parts]


def test_a_long_part_hides_no_shorter_one_that_is_faster() -> None:
    """A kernel of a product, a bias and a relu: there all three take longer than ours, the first two less."""
    parts = sets((0, 1, 2), (0, 1), (0,), (2,))
    took = {((0, 1, 2),): 9.5, ((0, 1),): 6.0, ((0,),): 7.0, ((0, 1), (2,)): 6.5, ((0,), (2,)): 7.5, ((2,),): 9.9}
    costs = GivenCosts({frozenset(sets(*key)): seconds for key, seconds in took.items()})
    (found,) = found_there(chain(3), [KernelCost(frozenset({0, 1, 2}), 9.0)], parts, costs)
    assert found.operators == {0, 1}
    in_order = PlacesByOrder((LIBRARY,))(chain(3), lambda _: TakenOperators.in_parts(tuple(parts)))
    assert [each.operators for each in in_order if each.backend] == [{0, 1, 2}]  # what nobody chose


@pytest.mark.parametrize("best", [0, 1])
def test_one_of_two_parts_with_an_operator_in_common_is_chosen(best: int) -> None:
    """Two products, and their sum, which either of them takes along."""
    values = (CoverValue(1.0), *(CoverValue(1.0, at, at == 2) for at in range(3)))
    graph = CoverGraph(((0,), (0,), (1, 2)), values, ("a", "b", "c"))
    parts = sets((0, 2), (1, 2))
    costs = GivenCosts({frozenset({part}): 5.0 + 0.1 * (at != best) for at, part in enumerate(parts)})
    (found,) = found_there(graph, [KernelCost(frozenset({at}), 3.0) for at in range(3)], parts, costs)
    assert found.operators == parts[best]


def test_parts_of_one_kernel_are_chosen_together() -> None:
    """Each of two alone breaks the kernel apart, which costs more than it saves."""
    took = {((0,),): 11.0, ((2,),): 11.0, ((0,), (2,)): 5.0}
    costs = GivenCosts({frozenset(sets(*key)): seconds for key, seconds in took.items()})
    found = found_there(chain(3), [KernelCost(frozenset({0, 1, 2}), 9.0)], sets((0,), (2,)), costs)
    assert [each.operators for each in found] == [{0}, {2}]


def test_parts_that_wait_for_each_other_are_not_chosen_together() -> None:
    """0 -> 1 and 2 -> 3, where 0 and 3 are a part and 2 and 1 another; nor is a part that waits for itself."""
    values = (CoverValue(1.0), *(CoverValue(1.0, at, at in (1, 3)) for at in range(4)))
    graph = CoverGraph(((0,), (1,), (0,), (3,)), values)
    kernels = [frozenset({at}) for at in range(4)]
    small = quotient(graph, kernels)
    candidates = PartSets(graph, small, kernels, sets((0, 3), (1, 2))).candidates()
    assert [each.parts for each in candidates] == [(frozenset({0, 3}),), (frozenset({1, 2}),)]
    three = chain(3)
    assert PartSets(three, three, kernels[:3], sets((0, 2))).candidates() == []


def test_a_placement_that_names_other_parts_is_none_of_this_graph() -> None:
    graph, parts = chain(3), sets((0, 1), (2,))
    point = point_of([PlacedSubgraph(part, LIBRARY) for part in parts], lambda _: parts)
    assert point == {"0": LIBRARY, "1 with": 0}
    for other in ({"0": LIBRARY}, {"0": LIBRARY, "2 with": 0}, {"0": LIBRARY, "a with": 0}, {"0": HOST, "1": LIBRARY}):
        assert placement_at(other, graph, 1, lambda _: parts) is None


@pytest.mark.parametrize("seed", range(150))
def test_covers_by_overlapping_parts_are_the_best_of_all(seed: int) -> None:
    """Of all sets of parts without an operator in common in which none waits for itself: what touches the same kernels
    is measured together."""
    rng, graph = random.Random(seed), drawn(seed, 9)
    kernels = _kernels(rng, graph)
    parts = list(dict.fromkeys(_drawn_part(rng, graph) for _ in range(8)))
    costs = GivenCosts(seed=seed)
    best = min(_all_covers(graph, kernels, parts, costs))
    found = found_there(graph, kernels, parts, costs)
    took = _seconds(graph, kernels, [each.operators for each in found], costs)
    assert took == pytest.approx(best), seed


def _kernels(rng: random.Random, graph: CoverGraph) -> list[KernelCost]:
    """Return runs of operators as kernels, none of which waits for itself."""
    shift = rng.randrange(3)
    runs = [frozenset(run) for _, run in itertools.groupby(graph.operators, key=lambda at: (at + shift) // 3)]
    return [KernelCost(group, rng.uniform(1.0, 3.0)) for group in ordered_groups(graph, runs)]


def _drawn_part(rng: random.Random, graph: CoverGraph) -> frozenset[int]:
    """Return a few operators, each of which reads one before or is read by it."""
    part = {rng.randrange(len(graph.operators))}
    for _ in range(rng.randrange(3)):
        near = {each for at in part for each in graph.sources[at]}
        near |= {each for each in graph.operators if graph.sources[each] & part}
        part.add(rng.choice(sorted(near - part) or [min(part)]))
    return frozenset(part)


def _all_covers(
    graph: CoverGraph, kernels: Sequence[KernelCost], parts: Sequence[frozenset[int]], costs: GivenCosts
) -> Iterator[float]:
    for size in range(len(parts) + 1):
        for chosen in itertools.combinations(parts, size):
            if sum(map(len, chosen)) == len(frozenset[int]().union(*chosen)):
                yield _seconds(graph, kernels, chosen, costs)


def _seconds(
    graph: CoverGraph, kernels: Sequence[KernelCost], chosen: Sequence[frozenset[int]], costs: GivenCosts
) -> float:
    """Return what a choice takes; infinite where something in it waits for itself."""
    groups = [kernel.operators for kernel in kernels]
    if _circle(graph, chosen):
        return math.inf
    regions = [({part}, _closed(graph, groups, part)) for part in chosen]
    while True:
        pair = next(((a, b) for a, b in itertools.combinations(regions, 2) if a[1] & b[1]), None)
        if pair is None:
            break
        (one, here), (other, there) = pair
        regions = [each for each in regions if each not in pair]
        regions.append((one | other, _closed(graph, groups, here | there)))
    if _circle(graph, [*groups, *(region for _, region in regions)]):
        return math.inf
    total = 0.0
    for inside, region in regions:
        ours = sum(kernel.seconds for kernel in kernels if kernel.operators <= region)
        total += costs.region(LIBRARY, region, tuple(sorted(inside, key=sorted)), ours)
    touched = frozenset[int]().union(*(region for _, region in regions))
    return total + sum(kernel.seconds for kernel in kernels if not kernel.operators & touched)


def _closed(graph: CoverGraph, groups: Sequence[frozenset[int]], part: frozenset[int]) -> frozenset[int]:
    """Return all of the groups that have some of a part, and of those between them, until none is missing."""
    region = part
    while True:
        more = frozenset[int]().union(*(group for group in groups if group & region))
        before, behind = _reached(graph, groups, more, back=True), _reached(graph, groups, more, back=False)
        more |= before & behind
        if more == region:
            return region
        region = more


def _reached(
    graph: CoverGraph, groups: Sequence[frozenset[int]], start: frozenset[int], *, back: bool
) -> frozenset[int]:
    """Return the operators of the groups that some wait for, or that wait for these, and these."""
    found = start
    while True:
        near = {each for at in found for each in graph.sources[at]}
        if not back:
            near = {each for each in graph.operators if graph.sources[each] & found}
        more = found.union(*(group for group in groups if group & near))
        if more == found:
            return found
        found = more


def _circle(graph: CoverGraph, joined: Sequence[frozenset[int]]) -> bool:
    """Return whether a set of operators waits for itself, where each of `joined` runs at once, the larger ones last."""
    home = {operator: frozenset({operator}) for operator in graph.operators}
    for group in joined:
        home.update(dict.fromkeys(group, group))
    before: dict[frozenset[int], set[frozenset[int]]] = {group: set() for group in home.values()}
    for operator in graph.operators:
        before[home[operator]] |= {home[source] for source in graph.sources[operator]} - {home[operator]}
    try:
        TopologicalSorter(before).prepare()
    except CycleError:
        return True
    return False
