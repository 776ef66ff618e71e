"""What must hold of a cover, and what it takes, read from the problem alone."""

from __future__ import annotations

from collections.abc import Sequence

from placement.cover.problem import HOST, CoverGraph, CoverProblem, SubgraphCandidate


def why_not_cover(graph: CoverGraph, subgraphs: Sequence[frozenset[int]]) -> str:
    """Return why `subgraphs`, in the order they run, do not compute `graph`; "" where they do.

    An order in which each subgraph reads only what is there proves that no two of them wait for each other.
    """
    done: set[int] = set()
    for position, subgraph in enumerate(subgraphs):
        if twice := done & subgraph:
            return f"operator {min(twice)} is placed twice"
        for operator in sorted(subgraph):
            if missing := graph.sources[operator] - done - subgraph:
                return f"subgraph {position} runs before operator {min(missing)}, which operator {operator} reads"
        done |= subgraph
    left = set(graph.operators) - done
    return f"operator {min(left)} is not placed" if left else ""


def cover_seconds(problem: CoverProblem, subgraphs: Sequence[SubgraphCandidate]) -> float:
    """Return what subgraphs that compute the graph take, in any order."""
    graph = problem.graph
    where = {operator: each.backend for each in subgraphs for operator in each.operators}
    total = 0.0
    for each in subgraphs:
        total += each.seconds + problem.calls[each.backend]
        for index in {value for operator in each.operators for value in graph.reads[operator]}:
            value = graph.values[index]
            if value.producer not in each.operators:
                source = HOST if value.producer is None else where[value.producer]
                total += problem.moves[source][each.backend].seconds(value.bytes)
    for value in graph.values:
        if value.is_result and value.producer is not None:
            total += problem.moves[where[value.producer]][HOST].seconds(value.bytes)
    return total
