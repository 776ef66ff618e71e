"""Chooses the nodes that ONNX Runtime runs because our kernels are far slower, and the order in which they are few
subgraphs.

    Conv (float16) -> Relu -> Conv (float16) -> Cast -> MatMul (float32)
    ->  [Conv -> Relu -> Conv] on ONNX Runtime, then Cast -> MatMul

Slow nodes are marked, then what ONNX Runtime makes part of them, then cheap nodes on a path between two that are. Where
hardly anything else is left, all of it is. No path leaves a subgraph and comes back, so that their contraction makes no
cycle: a node counts how often the paths to it went from a marked node to an unmarked one and on to a marked one
again, and only neighbours of the same count share a subgraph (XLA's and TVM's way with backends of their own).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx
from onnx import NodeProto, TypeProto

from fusion.frontends.onnx.fallback import name_of
from fusion.frontends.onnx.scope import ValueScope
from fusion.frontends.onnx.slow_operators import (
    HEAVY,
    QUANTIZED,
    TAIL,
    is_foreign,
    may_be_slow,
    multiplied_as_bytes,
    reason,
    slow,
    why_not_narrow,
    work,
)
from fusion.frontends.onnx.survey import Survey, survey

_WORTH_NS = 30_000.0
"""What a subgraph must take here: a call of ONNX Runtime takes 15 us by itself."""
_LEFT_OVER = 0.25
"""If the heavy nodes in float32 have less than this part of all multiplications, ONNX Runtime runs them too."""
_MOST = 3
"""One of so many other nodes at the most may be left for ONNX Runtime to run all of them."""
_BETWEEN = "it lies between nodes that ONNX Runtime runs"


@dataclass(frozen=True)
class FallbackChoice:
    """What ONNX Runtime is to run.

    Attributes:
        nodes: All nodes of the graph, in an order in which those of one subgraph meet no reader of it before its end.
        reasons: Why, by the first output of each node that is chosen.
        whole: Why the whole graph; "" where it is not.
    """

    nodes: tuple[NodeProto, ...]
    reasons: Mapping[str, str]
    whole: str = ""


def choose_fallbacks(
    graph: onnx.GraphProto, opsets: Mapping[str, int], scope: ValueScope, declared: dict[str, TypeProto],
    byte_products: tuple[tuple[str, str], ...] = (),
) -> FallbackChoice:  # fmt: skip
    """Return which nodes of `graph` ONNX Runtime is to run.

    Args:
        opsets: Version of each domain.
        scope: Types of the inputs, and the constants.
        declared: Types that the model gives.
        byte_products: As in `translate`.
    """
    dtypes = {kind.tensor_type.elem_type for kind in scope.types.values()}
    casts = (node for node in graph.node if node.op_type == "Cast")
    dtypes.update(int(a.i) for node in casts for a in node.attribute if a.name == "to")
    dtypes.update(a.t.data_type for node in graph.node for a in node.attribute if a.HasField("t"))
    if not may_be_slow(graph.node, dtypes):
        return FallbackChoice(tuple(graph.node), {})
    return plan_fallbacks(survey(graph.node, opsets, scope, declared), byte_products)


def plan_fallbacks(graph: Survey, byte_products: tuple[tuple[str, str], ...] = ()) -> FallbackChoice:
    """Return which nodes of `graph` ONNX Runtime is to run."""
    costs = _Marks(graph, byte_products)
    marked = costs.marked
    _between(graph, marked)
    groups = _groups(graph, marked)
    for group in set(groups.values()):
        members = [index for index, of in groups.items() if of == group]
        if sum(costs.ns.get(index, 0.0) for index in members) < _WORTH_NS:
            for index in members:
                del marked[index], groups[index]
    _add_weights(graph, marked, groups)
    if not marked:
        return FallbackChoice(tuple(graph.nodes), {})
    first = min(index for index in marked if index in costs.ns)
    whole = f"because of {graph.nodes[first].op_type} {_label(graph.nodes[first])!r}: {marked[first]}"
    reasons = {name_of(graph.nodes[index]): why for index, why in marked.items()}
    nodes = tuple(graph.nodes[index] for index in _in_order(graph, groups))
    return FallbackChoice(nodes, reasons, whole if _hardly_any_left(graph, marked) else "")


def _label(node: NodeProto) -> str:
    return str(node.name or name_of(node))


class _Marks:
    """The slow nodes of a graph with what belongs to them: why each is marked, and the time of the slow ones."""

    def __init__(self, graph: Survey, byte_products: tuple[tuple[str, str], ...] = ()) -> None:
        self._graph, self._byte_products = graph, byte_products
        self.marked: dict[int, str] = {}
        self.ns: dict[int, float] = {}
        for index, node in enumerate(graph.nodes):
            if index not in graph.known:
                self._mark(index, node)
        for index in list(self.ns):
            self._mark_tail(index)

    def _mark(self, index: int, node: NodeProto) -> None:
        if is_foreign(node):
            self.marked[index], self.ns[index] = "ONNX Runtime alone has this operator", _WORTH_NS
            return
        if why := why_not_narrow(node, self._graph.fixed, self._byte_products):
            self.marked[index], self.ns[index] = why, _WORTH_NS
            return
        pairs = [source for source in self._graph.before[index] if self._is(source, "DequantizeLinear")]
        dequantized = node.op_type in QUANTIZED and any(source not in self._graph.known for source in pairs)
        cost = slow(node, self._graph.types, dequantized)
        if cost is None:
            return
        graph, products = self._graph, self._byte_products
        if products and multiplied_as_bytes(node, graph.types, graph.fixed, dequantized, products):
            return
        self.marked[index] = reason(node, cost, self._graph.types, dequantized)
        self.ns[index] = cost.ns * work(node, self._graph.types)
        around = pairs if dequantized else []
        around += [near for pair in around for near in self._graph.before[pair] if self._is(near, "QuantizeLinear")]
        around += [near for near in self._graph.before[index] if self._is(near, "DynamicQuantizeLinear")]
        for near in around:
            self.marked.setdefault(near, f"it belongs to {node.op_type} {_label(node)!r}, which ONNX Runtime runs")

    def _is(self, index: int, operator: str) -> bool:
        return bool(self._graph.nodes[index].op_type == operator)

    def _mark_tail(self, index: int) -> None:
        """Mark what follows an operator and is its own, as no other node reads what is between."""
        node = self._graph.nodes[index]
        while len(self._graph.after[index]) == 1:
            (index,) = self._graph.after[index]
            if self._graph.nodes[index].op_type not in TAIL:
                return
            self.marked.setdefault(index, f"it belongs to {node.op_type} {_label(node)!r}, which ONNX Runtime runs")


def _between(graph: Survey, marked: dict[int, str]) -> None:
    """Mark the cheap nodes on paths of cheap nodes from one marked node to another."""
    behind, ahead = set(marked), set(marked)
    cheap = [i for i, node in enumerate(graph.nodes) if i not in graph.known and node.op_type not in HEAVY]
    for index in cheap:
        if graph.before[index] & behind:
            behind.add(index)
    for index in reversed(cheap):
        if graph.after[index] & ahead:
            ahead.add(index)
    for index in behind & ahead:
        marked.setdefault(index, _BETWEEN)


def _groups(graph: Survey, marked: dict[int, str]) -> dict[int, int]:
    """Return the subgraph of each marked node that the run does not leave out."""
    depth: dict[int, tuple[int, bool]] = {}
    group: dict[int, int] = {}

    def root(index: int) -> int:
        while group[index] != index:
            index = group[index]
        return index

    for index in range(len(graph.nodes)):
        if index in graph.known:
            continue
        inside = index in marked
        near = [(source, *depth[source]) for source in graph.before[index] if source in depth]
        # A path that is outside has left a subgraph; where it comes back, another one begins.
        count = max((of + (inside and away) for _, of, away in near), default=0)
        outside = not inside and any(of == count and (away or source in marked) for source, of, away in near)
        depth[index] = (count, outside)
        if inside:
            group[index] = index
            for source, of, _ in near:
                if source in marked and of == count:
                    group[root(source)] = root(index)
    return {index: root(index) for index in group}


def _add_weights(graph: Survey, marked: dict[int, str], groups: dict[int, int]) -> None:
    """Let weights in bytes stay so where their reader is marked; others are known, and no node computes them."""
    for index in graph.known & marked.keys():
        readers = {groups[reader] for reader in graph.after[index] if reader in groups}
        if len(readers) == 1:
            groups[index] = readers.pop()
        else:
            del marked[index]


def _hardly_any_left(graph: Survey, marked: dict[int, str]) -> bool:
    run = [index for index in range(len(graph.nodes)) if index not in graph.known]
    products = {index: work(graph.nodes[index], graph.types) for index in run if graph.nodes[index].op_type in HEAVY
                or graph.nodes[index].op_type.endswith(("Integer", "LinearConv", "LinearMatMul"))}  # fmt: skip
    left = sum(size for index, size in products.items() if index not in marked)
    few = _MOST * sum(index not in marked for index in run) <= len(run)
    return few and left <= _LEFT_OVER * sum(products.values())


def _in_order(graph: Survey, groups: dict[int, int]) -> Iterable[int]:
    """Yield all nodes after what they read, those of a subgraph before any other node that reads it."""
    waiting = [len(before) for before in graph.before]
    unfinished: dict[int, int] = {}
    for group in groups.values():
        unfinished[group] = unfinished.get(group, 0) + 1
    ready = [(_rank(graph, groups, index), index) for index, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    held: list[tuple[int, int]] = []
    while ready or held:
        if not ready:
            ready, held = held, []  # what a subgraph waits for, after all
            heapq.heapify(ready)
            rank, index = heapq.heappop(ready)
        else:
            rank, index = heapq.heappop(ready)
            if rank and any(unfinished.get(groups.get(source, -1)) for source in graph.before[index]):
                held.append((rank, index))
                continue
        yield index
        if index in groups:
            unfinished[groups[index]] -= 1
            if not unfinished[groups[index]]:
                for item in held:
                    heapq.heappush(ready, item)
                held = []
        for reader in graph.after[index]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (_rank(graph, groups, reader), reader))


def _rank(graph: Survey, groups: dict[int, int], index: int) -> int:
    return 0 if index in groups or index in graph.known else 1
