"""The search of a placement by costs that are given: it moves what is faster elsewhere, and nothing else."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from fusion.placing.records import placement_at, point_of
from fusion.placing.search import KernelCost, SearchedLibrary, search_placement
from placement.cover.candidates import candidate_regions
from placement.cover.check import why_not_cover
from placement.cover.places import TakenOperators
from placement.cover.problem import HOST, CoverGraph, CoverValue
from placement.cover.quotient import ordered_groups, quotient
from placement.cover.regions import PlacedSubgraph, move_groups

CALL = 0.05


def drawn(seed: int, size: int = 12) -> CoverGraph:
    """Return a random graph of which each operator makes one value."""
    rng = random.Random(seed)
    reads = tuple(tuple(sorted(rng.sample(range(at + 1), min(at + 1, rng.randint(1, 3))))) for at in range(size))
    values = (CoverValue(1.0), *(CoverValue(1.0, at, at == size - 1) for at in range(size)))
    return CoverGraph(reads, values, tuple(f"v{at}" for at in range(size)))


@dataclass
class TableCosts:
    """Costs of operators by backend; a call takes more. A part that fails takes forever."""

    seconds: Sequence[Sequence[float]]
    asked: list[tuple[int, frozenset[int]]] = field(default_factory=list)

    def region(
        self, backend: int, operators: frozenset[int], parts: tuple[frozenset[int], ...] | None, ours: float
    ) -> float:
        self.asked.append((backend, operators))
        there = operators if parts is None else frozenset[int]().union(*parts)
        here = sum(self.seconds[HOST][each] for each in operators - there)
        calls = 1 if parts is None else len(parts)
        return sum(self.seconds[backend][each] for each in there) + CALL * calls + here

    def whole(self, groups: Sequence[PlacedSubgraph]) -> float:
        calls = sum(group.backend != HOST for group in groups)
        return CALL * calls + sum(self.seconds[group.backend][each] for group in groups for each in group.operators)


def placed_by(graph: CoverGraph, seconds: Sequence[Sequence[float]], takes: dict[int, frozenset[int]]) -> list[int]:
    """Return the backend of each operator."""
    kernels = [KernelCost(frozenset({at}), seconds[HOST][at]) for at in graph.operators]
    libraries = {backend: SearchedLibrary(TakenOperators(taken)) for backend, taken in takes.items()}
    groups = search_placement(graph, kernels, libraries, TableCosts(seconds), lambda: True)
    assert why_not_cover(graph, [group.operators for group in groups]) == ""
    where = {operator: group.backend for group in groups for operator in group.operators}
    return [where[at] for at in graph.operators]


def test_slowed_matmuls_move_and_nothing_else() -> None:
    """A chain of matmul, relu, matmul, relu ...: the library takes all, 1.1 times what our kernels take."""
    size = 12
    values = (CoverValue(1.0), *(CoverValue(1.0, at, at == size - 1) for at in range(size)))
    graph = CoverGraph(tuple((at,) for at in range(size)), values)
    usual = [1.0 if at % 2 == 0 else 0.5 for at in range(size)]
    library = [1.1 * took for took in usual]
    everything = {1: frozenset(graph.operators)}
    assert placed_by(graph, [usual, library], everything) == [0] * size
    slowed = [3.0 * took if at % 2 == 0 else took for at, took in enumerate(usual)]
    apart = [took if at % 2 == 0 else 10.0 for at, took in enumerate(library)]  # what it does not do well
    assert placed_by(graph, [slowed, apart], everything) == [1 - at % 2 for at in range(size)]


def test_parts_of_groups_move_and_the_rest_stays() -> None:
    """Kernels of a matmul and its relu: a library that runs matmuls only has these, where that pays with the relu."""
    values = (CoverValue(1.0), *(CoverValue(1.0, at, at == 5) for at in range(6)))
    graph = CoverGraph(tuple((at,) for at in range(6)), values)
    kernels = [KernelCost(frozenset({at, at + 1}), 9.0 if at == 2 else 1.0) for at in (0, 2, 4)]
    takes = TakenOperators.in_parts([frozenset({at}) for at in (0, 2, 4)])
    costs = TableCosts([[0.5, 0.5, 8.5, 0.5, 0.5, 0.5], [1.0] * 6])
    groups = search_placement(graph, kernels, {1: SearchedLibrary(takes)}, costs, lambda: True)
    assert why_not_cover(graph, [group.operators for group in groups]) == ""
    assert [group.operators for group in groups if group.backend == 1] == [frozenset({2})]
    assert (1, frozenset({2, 3})) in costs.asked
    assert placement_at(point_of(groups, lambda _: takes.parts), graph, 1, lambda _: takes.parts) is not None


def test_what_fails_is_taken_by_none() -> None:
    graph = drawn(0)
    usual, failing = [1.0] * 12, [math.inf] * 12
    assert placed_by(graph, [usual, failing], {1: frozenset(graph.operators)}) == [0] * 12


def test_the_faster_of_two_libraries_has_each() -> None:
    graph = CoverGraph(((0,), (1,)), (CoverValue(1.0), CoverValue(1.0, 0), CoverValue(1.0, 1, True)))
    takes = {1: frozenset({0, 1}), 2: frozenset({0, 1})}
    assert placed_by(graph, [[9.0, 9.0], [1.0, 8.0], [8.0, 1.0]], takes) == [1, 2]


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_are_covered(seed: int) -> None:
    """None is slower than all on the host, and each has an order in which it can run."""
    rng, graph = random.Random(seed), drawn(seed)
    seconds = [[rng.uniform(0.1, 2.0) for _ in graph.operators] for _ in range(3)]
    takes = {backend: frozenset(at for at in graph.operators if rng.random() < 0.8) for backend in (1, 2)}
    where = placed_by(graph, seconds, takes)
    assert all(not backend or at in takes[backend] for at, backend in enumerate(where))


@pytest.mark.parametrize("seed", range(20))
def test_groups_and_regions_have_an_order(seed: int) -> None:
    rng, graph = random.Random(seed), drawn(seed, 20)
    drawn_groups = [frozenset(at for at in graph.operators if at % 5 == rest) for rest in range(5)]
    groups = ordered_groups(graph, drawn_groups)
    assert why_not_cover(graph, groups) == ""
    small = quotient(graph, groups)
    taken = frozenset(at for at in small.operators if rng.random() < 0.7)
    for region in candidate_regions(small, taken):
        assert region <= taken
        rest = [PlacedSubgraph(frozenset({at}), 0) for at in small.operators if at not in region]
        joined = move_groups(small, [PlacedSubgraph(region, 1), *rest], [False] * (len(rest) + 1), 1)
        assert why_not_cover(small, [group.operators for group in joined]) == ""


def test_a_placement_is_a_point_of_a_record() -> None:
    graph = drawn(3)
    groups = [PlacedSubgraph(frozenset({at}), int(3 <= at < 6)) for at in graph.operators]
    point = point_of(groups, lambda _: None)
    assert point == {"0": 0, "3": 1, "6": 0}
    again = placement_at(point, graph, 1, lambda _: None)
    assert again is not None
    assert point_of(again, lambda _: None) == point
    for other in ({}, {"1": 0}, {"0": 2}, {"0": 0, "12": 1}, {"a": 0}):
        assert placement_at(other, graph, 1, lambda _: None) is None


def test_all_that_a_library_takes_is_not_measured_again() -> None:
    """What the whole takes there is known; the parts are asked for, of the faster library first."""
    graph = CoverGraph(((0,), (1,)), (CoverValue(1.0), CoverValue(1.0, 0), CoverValue(1.0, 1, True)))
    costs = TableCosts([[9.0, 9.0], [9.0, 9.0], [9.0, 9.0]])
    kernels = [KernelCost(frozenset({at}), 9.0) for at in graph.operators]
    both = TakenOperators(frozenset({0, 1}))
    libraries = {1: SearchedLibrary(both, 1.5), 2: SearchedLibrary(both, 1.2)}
    groups = search_placement(graph, kernels, libraries, costs, lambda: True)
    assert {group.backend for group in groups} == {0}
    assert frozenset({0, 1}) not in [operators for _, operators in costs.asked]
    assert [backend for backend, _ in costs.asked] == [2, 2, 1, 1]
    half = {1: SearchedLibrary(both, 0.5)}
    moved = search_placement(graph, kernels, half, TableCosts([[9.0, 9.0], [4.5, 4.5]]), lambda: True)
    assert [(group.operators, group.backend) for group in moved] == [(frozenset({0, 1}), 1)]


def test_what_loses_in_the_whole_comes_back() -> None:
    """Of two regions that are faster alone one slows down what is behind it: the evolution takes that one back."""

    @dataclass
    class Disturbed(TableCosts):
        def whole(self, groups: Sequence[PlacedSubgraph]) -> float:
            there = {operator for group in groups if group.backend != HOST for operator in group.operators}
            return super().whole(groups) + 5.0 * (4 in there)

    values = (CoverValue(1.0), *(CoverValue(1.0, at, at == 4) for at in range(5)))
    graph = CoverGraph(tuple((at,) for at in range(5)), values)
    costs = Disturbed([[3.0, 1.0, 1.0, 1.0, 3.0], [1.0, 9.0, 9.0, 9.0, 1.0]])
    kernels = [KernelCost(frozenset({at}), costs.seconds[HOST][at]) for at in graph.operators]
    libraries = {1: SearchedLibrary(TakenOperators(frozenset(graph.operators)))}
    groups = search_placement(graph, kernels, libraries, costs, lambda: True)
    assert [group.operators for group in groups if group.backend != HOST] == [frozenset({0})]


def test_the_longest_are_asked_for_first() -> None:
    graph = CoverGraph(((0,), (1,), (2,)), (CoverValue(1.0), *(CoverValue(1.0, at, at == 2) for at in range(3))))
    costs = TableCosts([[1.0, 9.0, 4.0], [99.0] * 3])
    kernels = [KernelCost(frozenset({at}), costs.seconds[HOST][at]) for at in graph.operators]
    search_placement(graph, kernels, {1: SearchedLibrary(TakenOperators(frozenset({0, 1, 2})))}, costs, lambda: True)
    alone = [operators for _, operators in costs.asked if len(operators) == 1]
    assert alone == [frozenset({1}), frozenset({2}), frozenset({0})]
