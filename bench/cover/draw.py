"""Random problems of covering a graph."""

from __future__ import annotations

import random

from placement.cover.problem import CoverGraph, CoverProblem, CoverValue, MoveCost, SubgraphCandidate


def draw_cover_problem(seed: int, operators: int = 0) -> CoverProblem:
    """Return a problem of two or three backends, of which the first takes each operator alone; of `operators`, or of up
    to 12.

    Candidates are drawn as they grow, from an operator to its neighbours: some are not convex, some would wait for each
    other, some fail.
    """
    draw = random.Random(seed)
    graph = _graph(draw, operators or draw.randint(1, 12))
    backends = draw.choice((2, 3))
    price = draw.choice((0.0, 0.1, 1.0))
    moves = tuple(
        tuple(
            MoveCost() if a == b else MoveCost(draw.uniform(0, price), draw.uniform(0, price)) for b in range(backends)
        )
        for a in range(backends)
    )
    alone = [SubgraphCandidate(frozenset((operator,)), 0, draw.uniform(0.5, 2.0)) for operator in graph.operators]
    drawn = [_candidate(draw, graph, backends) for _ in range(draw.randint(1, 3) * len(graph.reads))]
    calls = tuple(draw.uniform(0.0, 0.2) for _ in range(backends))
    return CoverProblem(graph, tuple(alone + drawn), moves, calls)


def _graph(draw: random.Random, size: int) -> CoverGraph:
    inputs = draw.randint(1, 3)
    values = [CoverValue(draw.uniform(0.0, 1.0)) for _ in range(inputs)]
    reads = []
    reach = draw.choice((3, 6, 1000))
    for operator in range(size):
        near = range(max(0, len(values) - reach), len(values))
        reads.append(tuple(sorted({draw.choice(near) for _ in range(draw.choice((1, 1, 2, 3)))})))
        for _ in range(draw.choice((1, 1, 1, 2))):
            values.append(CoverValue(draw.uniform(0.0, 1.0), operator, draw.random() < 0.1))
    return CoverGraph(tuple(reads), tuple(values))


def _candidate(draw: random.Random, graph: CoverGraph, backends: int) -> SubgraphCandidate:
    taken = {draw.choice(graph.operators)}
    for _ in range(draw.choice((0, 1, 1, 2, 3, 5))):
        near = {source for operator in taken for source in graph.sources[operator]}
        near |= {operator for operator in graph.operators if graph.sources[operator] & taken}
        if near - taken:
            taken.add(draw.choice(sorted(near - taken)))
    seconds = float("inf") if draw.random() < 0.03 else len(taken) * draw.uniform(0.2, 2.0)
    return SubgraphCandidate(frozenset(taken), draw.randrange(backends), seconds)
