"""Covers of random graphs: acyclic, every operator once, the best there is where they say so; joined regions and
evolution."""

from __future__ import annotations

import dataclasses
import random

import pytest

from bench.cover.__main__ import difference_of, why_wrong
from bench.cover.draw import draw_cover_problem
from bench.cover.exhaustive import has_cycle
from fusion.declined import Declined
from placement.cover.check import cover_seconds, why_not_cover
from placement.cover.evolve import Evolution, evolve
from placement.cover.lazy import find_measured_cover
from placement.cover.problem import CoverGraph, CoverProblem, CoverValue, MoveCost, SubgraphCandidate, subgraphs_of
from placement.cover.regions import PlacedSubgraph, move_groups
from placement.cover.search import find_cover


def chain(length: int) -> CoverGraph:
    """Return operators of which each reads the one before."""
    values = [CoverValue(1.0), *(CoverValue(1.0, at, at == length - 1) for at in range(length))]
    return CoverGraph(tuple((at,) for at in range(length)), tuple(values))


def two_backends(graph: CoverGraph, candidates: list[SubgraphCandidate], move: float) -> CoverProblem:
    away = MoveCost(fixed=move)
    return CoverProblem(graph, tuple(candidates), ((MoveCost(), away), (away, MoveCost())), (0.0, 0.0))


def test_covers_are_the_best_of_all() -> None:
    """Of ten thousand by `python -m bench.cover`."""
    wrong = {seed: found for seed in range(500) if (found := difference_of(seed))}
    assert not wrong


def test_covers_have_no_cycle() -> None:
    """Nor an operator that is placed twice or nowhere, and they take what they say; one in four of the ten thousand."""
    drawn = ((seed, draw_cover_problem(seed)) for seed in range(0, 10_000, 4))
    wrong = {seed: why for seed, problem in drawn if (why := why_wrong(problem, find_cover(problem)))}
    assert not wrong


@pytest.mark.parametrize("seed", range(3, 6))
def test_large_graphs(seed: int) -> None:
    problem = draw_cover_problem(seed, 100)
    cover = find_cover(problem, limit=20)
    assert why_wrong(problem, cover) == ""
    assert cover.seconds <= sum(each.seconds for each in problem.candidates[:100]) + 100 * problem.calls[0]


def test_what_moving_costs_decides() -> None:
    """The middle of three operators is faster elsewhere: worth it where two moves take less than what that saves."""
    alone = [SubgraphCandidate(frozenset((at,)), 0, 1.0) for at in range(3)]
    for move, backends, seconds in ((0.2, [0, 1, 0], 2.8), (0.4, [0, 0, 0], 3.0)):
        problem = two_backends(chain(3), [*alone, SubgraphCandidate(frozenset((1,)), 1, 0.4)], move)
        cover = find_cover(problem)
        assert [each.backend for each in subgraphs_of(problem, cover)] == backends
        assert (cover.seconds, cover.is_exact) == (pytest.approx(seconds), True)


def test_what_is_not_convex_is_not_chosen() -> None:
    """0 -> 1 -> 2 with 0 -> 2: the two ends together would wait for the middle, which waits for them."""
    graph = dataclasses.replace(chain(3), reads=((0,), (1,), (1, 2)))
    alone = [SubgraphCandidate(frozenset((at,)), 0, 1.0) for at in range(3)]
    problem = two_backends(graph, [*alone, SubgraphCandidate(frozenset((0, 2)), 1, 0.01)], 0.0)
    assert find_cover(problem).seconds == pytest.approx(3.0)


def test_subgraphs_that_wait_for_each_other_are_not_chosen_together() -> None:
    """Two chains 0 -> 1, 2 -> 3: {0, 3} and {2, 1} are each cheap and convex."""
    values = (CoverValue(1.0), *(CoverValue(1.0, at, at in (1, 3)) for at in range(4)))
    graph = CoverGraph(((0,), (1,), (0,), (3,)), values)
    alone = [SubgraphCandidate(frozenset((at,)), 0, 1.0) for at in range(4)]
    cheap = [SubgraphCandidate(frozenset(pair), 1, 0.1) for pair in ((0, 3), (1, 2))]
    assert find_cover(two_backends(graph, alone + cheap, 0.0)).seconds == pytest.approx(2.1)


def test_operators_that_nobody_takes_are_named() -> None:
    with pytest.raises(Declined, match="no backend takes operator 1"):
        find_cover(two_backends(chain(2), [SubgraphCandidate(frozenset((0,)), 0, 1.0)], 0.0))
    crossed = [SubgraphCandidate(frozenset((0, 2)), 0, 1.0), SubgraphCandidate(frozenset((1,)), 0, 1.0)]
    with pytest.raises(Declined, match="of its own"):
        find_cover(two_backends(chain(3), crossed, 0.0))
    assert find_cover(CoverProblem(CoverGraph((), ()), (), ((MoveCost(),),), (0.0,))).chosen == ()


def test_only_what_may_be_chosen_is_measured() -> None:
    """The cover is that of all measured, with fewer measurements."""
    measured = needed = 0
    for seed in range(12):
        true = draw_cover_problem(seed, 12)
        low = tuple(dataclasses.replace(each, seconds=len(each.operators) * 0.2) for each in true.candidates)
        asked: list[int] = []

        def measure(index: int, true: CoverProblem = true, asked: list[int] = asked) -> float:
            asked.append(index)
            return true.candidates[index].seconds

        found = find_measured_cover(dataclasses.replace(true, candidates=low), measure, {})
        assert found.cover.seconds == pytest.approx(find_cover(true).seconds)
        assert len(asked) == len(set(asked))
        again = find_measured_cover(dataclasses.replace(true, candidates=low), measure, found.measured)
        assert (again.cover.seconds, len(asked)) == (found.cover.seconds, len(found.measured))
        measured, needed = measured + len(asked), needed + len(true.candidates)
    assert measured < needed


@pytest.mark.parametrize("seed", range(8))
def test_joined_regions_are_acyclic(seed: int) -> None:
    problem, draw = draw_cover_problem(seed, 40), random.Random(seed)
    found = subgraphs_of(problem, find_cover(problem, limit=20))
    groups = [PlacedSubgraph(each.operators, each.backend) for each in found]
    moved = [draw.random() < 0.7 for _ in groups]
    joined = move_groups(problem.graph, groups, moved, 1)
    assert why_not_cover(problem.graph, [each.operators for each in joined]) == ""
    moved_operators = {at for group, goes in zip(groups, moved, strict=True) if goes for at in group.operators}
    assert moved_operators <= {at for each in joined if each.backend == 1 for at in each.operators}
    # No two more can be joined: together they would wait for others.
    ends = [each for each in joined if each.backend == 1]
    for first in ends:
        for last in ends:
            if first is not last and any(problem.graph.sources[at] & first.operators for at in last.operators):
                rest = [each.operators for each in joined if each not in (first, last)]
                assert has_cycle(problem.graph, [first.operators | last.operators, *rest])


def test_evolution_is_never_slower_than_its_starts() -> None:
    draw = random.Random(3)
    hidden = tuple(draw.random() < 0.5 for _ in range(24))

    def evaluate(bits: tuple[bool, ...]) -> float:
        asked.append(bits)
        return 1.0 + sum(bit != good for bit, good in zip(bits, hidden, strict=True))

    starts = ((False,) * 24, (True,) * 24)
    asked: list[tuple[bool, ...]] = []
    found = evolve(starts, evaluate, Evolution(evaluations=600))
    assert len(asked) == len(set(asked)) == found.evaluations <= 600
    assert tuple(asked[:2]) == starts
    assert found.seconds < min(evaluate(start) for start in starts) / 2
    assert evolve(starts, evaluate, Evolution(evaluations=600)) == found
    stopped = evolve(starts, evaluate, Evolution(evaluations=600), goes_on=lambda: False)
    assert (stopped.bits, stopped.evaluations) == (starts[0], 1)
    nothing_works = evolve(starts[:1], lambda bits: float("inf") if any(bits) else 2.0, Evolution(evaluations=30))
    assert (nothing_works.bits, nothing_works.seconds) == (starts[0], 2.0)
    assert evolve([(False,)], lambda bits: 2.0 - bits[0], Evolution(evaluations=30)).bits == (True,)
    assert evolve([()], lambda bits: 1.0, Evolution(evaluations=30)).evaluations == 1


def test_evolution_of_placements_never_loses_to_one_backend_alone() -> None:
    """A call of a subgraph is dear and the sum of parts is not the whole: level one does not see it, level two does."""
    problem = draw_cover_problem(5, 16)
    groups = [PlacedSubgraph(each.operators, 0) for each in problem.candidates[:16]]

    def evaluate(bits: tuple[bool, ...]) -> float:
        placed = move_groups(problem.graph, groups, bits, 1)
        seconds = (0.3 + 0.5 * len(each.operators) for each in placed)
        timed = [
            SubgraphCandidate(each.operators, each.backend, took) for each, took in zip(placed, seconds, strict=True)
        ]
        return cover_seconds(problem, timed)

    starts = ((False,) * 16, (True,) * 16)
    found = evolve(starts, evaluate, Evolution(evaluations=300))
    assert found.seconds <= min(map(evaluate, starts))
