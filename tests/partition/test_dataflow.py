"""`Groups` against a search of every path: what may be merged, and that merging keeps the graph of groups acyclic."""

from __future__ import annotations

from dataclasses import dataclass

import networkx
from hypothesis import given, settings
from hypothesis import strategies as st

from partition.access import AccessSummary, MappingKind
from partition.dataflow import DataflowNode, Groups


@dataclass(frozen=True)
class Sketch:
    """A graph and what is to be merged in it.

    Attributes:
        edges: Pairs of positions, the producer first.
        merges: Positions of the nodes whose groups become one if they may.
    """

    size: int
    edges: frozenset[tuple[int, int]]
    merges: tuple[tuple[int, ...], ...]


@st.composite
def sketches(draw: st.DrawFn) -> Sketch:
    """Draw up to 12 nodes, edges of which most are short, and merges of two or three groups."""
    size = draw(st.integers(2, 12))
    near = st.integers(1, size - 1).flatmap(lambda i: st.tuples(st.integers(max(0, i - 3), i - 1), st.just(i)))
    far = st.integers(1, size - 1).flatmap(lambda i: st.tuples(st.integers(0, i - 1), st.just(i)))
    edges = draw(st.frozensets(near | far, max_size=2 * size))
    merge = st.lists(st.integers(0, size - 1), min_size=2, max_size=3, unique=True).map(tuple)
    return Sketch(size, edges, tuple(draw(st.lists(merge, max_size=2 * size))))


def nodes_of(sketch: Sketch) -> list[DataflowNode]:
    """Return the graph as the partition reads it."""
    nodes = [DataflowNode(index, None, None, AccessSummary(MappingKind.ELEMENTWISE)) for index in range(sketch.size)]
    for source, target in sorted(sketch.edges):
        nodes[target].inputs.append(nodes[source])
        nodes[source].consumers.append(nodes[target])
    return nodes


def contracted(groups: Groups, nodes: list[DataflowNode]) -> networkx.DiGraph:
    """Return the graph of groups, each named by its first member."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(groups.of(node)[0].index for node in nodes)
    edges = ((groups.of(source)[0].index, groups.of(node)[0].index) for node in nodes for source in node.inputs)
    graph.add_edges_from((source, target) for source, target in edges if source != target)
    return graph


def may_merge(graph: networkx.DiGraph, merged: set[int]) -> bool:
    """Return whether no path from one of `merged` to one of them, or back to itself, has others on it."""
    outside = graph.copy()
    outside.remove_edges_from([edge for edge in graph.edges if merged.issuperset(edge)])
    return not any(
        networkx.has_path(outside, after, target)
        for source in merged
        for after in outside.successors(source)
        for target in merged
    )


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(sketches())
def test_what_may_merge_is_what_no_path_leads_out_of_and_back(sketch: Sketch) -> None:
    nodes = nodes_of(sketch)
    groups = Groups(nodes)
    for positions in sketch.merges:
        chosen = [nodes[position] for position in positions]
        before = contracted(groups, nodes)
        answer = groups.can_merge(*chosen)
        assert answer == may_merge(before, {groups.of(node)[0].index for node in chosen})
        assert contracted(groups, nodes).edges == before.edges, "asking changes nothing"
        if answer:
            groups.merge(*chosen)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(sketches())
def test_legal_merges_leave_no_cycle_and_lose_no_node(sketch: Sketch) -> None:
    nodes = nodes_of(sketch)
    groups = Groups(nodes)
    for positions in sketch.merges:
        chosen = [nodes[position] for position in positions]
        if groups.can_merge(*chosen):
            groups.merge(*chosen)
            assert len({id(groups.of(node)) for node in chosen}) == 1
        assert networkx.is_directed_acyclic_graph(contracted(groups, nodes))
        members = [[node.index for node in group] for group in groups.all()]
        assert all(group == sorted(group) for group in members)
        assert sorted(index for group in members for index in group) == list(range(sketch.size))
