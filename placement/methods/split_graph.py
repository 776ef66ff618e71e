"""Cuts a graph into parts that depend little on each other: DiviML's splitting by modularity (ICCAD 2023)."""

from __future__ import annotations

from collections.abc import Sequence

from placement.optional import optional
from placement.problem import PlacementProblem


def split_graph(problem: PlacementProblem, largest: int) -> list[list[int]]:
    """Return parts of at most so many tasks, each behind those that it reads from; tasks in the order of the graph.

    Communities that depend on each other in a circle are one part; a part that is too large is cut in the order of
    the graph.
    """
    networkx = optional("networkx")
    undirected = networkx.Graph()
    undirected.add_nodes_from(problem.tasks)
    heaviest = max(problem.sent, default=0.0) or 1.0
    for edge in problem.graph.edges:
        # An edge without bytes is one all the same.
        undirected.add_edge(edge.source, edge.target, weight=0.1 + edge.bytes / heaviest)
    communities = networkx.community.louvain_communities(undirected, weight="weight", seed=0)
    parts = _acyclic(problem, communities)
    return [part[start : start + largest] for part in parts for start in range(0, len(part), largest)]


def _acyclic(problem: PlacementProblem, communities: Sequence[set[int]]) -> list[list[int]]:
    of = {task: index for index, members in enumerate(communities) for task in members}
    networkx = optional("networkx")
    quotient = networkx.DiGraph()
    quotient.add_nodes_from(range(len(communities)))
    quotient.add_edges_from(
        (of[edge.source], of[edge.target]) for edge in problem.graph.edges if of[edge.source] != of[edge.target]
    )
    merged = networkx.condensation(quotient)
    order = networkx.lexicographical_topological_sort(
        merged, key=lambda part: min(min(communities[index]) for index in merged.nodes[part]["members"])
    )
    return [sorted(task for index in merged.nodes[part]["members"] for task in communities[index]) for part in order]
