"""Real graphs with drawn costs: what an operator, and the rows of operators behind it, take on several backends."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tvm import relax

from bench import zoo
from fusion.bindings import Bindings, variables
from fusion.frontends import import_model
from placement.cover.problem import CoverGraph, CoverProblem, CoverValue, MoveCost, SubgraphCandidate

_LONGEST = 7
"""Operators of a candidate."""


def network_problem(name: str, backends: int, price: float) -> CoverProblem:
    """Return the operators of a model of the zoo with random times around 1, where moving a value takes `price`."""
    made = zoo.make(name)
    imported = import_model(str(made.path), made.shapes, strict=True)
    assert imported.mod is not None
    graph = _graph(imported.mod["main"])
    draw = random.Random(1)
    candidates = [each for operator in graph.operators for each in _behind(draw, graph, operator, backends)]
    away = MoveCost(fixed=price)
    moves = tuple(tuple(MoveCost() if a == b else away for b in range(backends)) for a in range(backends))
    return CoverProblem(graph, tuple(candidates), moves, (0.05,) * backends)


def _graph(function: relax.Function) -> CoverGraph:
    bindings = Bindings.of(function)
    places = {parameter: place for place, parameter in enumerate(function.params)}
    values, reads = [CoverValue(1.0) for _ in places], []
    for binding in bindings.all:
        reads.append(tuple(sorted({places[read] for read in variables(binding.value)})))
        places[binding.var] = len(values)
        values.append(CoverValue(1.0, len(reads) - 1, binding.var in bindings.returned))
    return CoverGraph(tuple(reads), tuple(values))


def _behind(draw: random.Random, graph: CoverGraph, first: int, backends: int) -> Iterator[SubgraphCandidate]:
    """Yield an operator on each backend, and with ever more of those behind it on some."""
    seconds, taken = draw.uniform(0.5, 2.0), {first}
    for backend in range(backends):
        yield SubgraphCandidate(frozenset(taken), backend, seconds * draw.uniform(0.6, 1.5))
    while len(taken) < _LONGEST:
        behind = [at for at in graph.operators if at not in taken and graph.sources[at] & taken]
        if not behind:
            return
        taken.add(behind[0])
        for backend in range(backends):
            if draw.random() < 0.6:
                yield SubgraphCandidate(frozenset(taken), backend, len(taken) * draw.uniform(0.4, 1.4))
