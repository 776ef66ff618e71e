"""The pass that partitions the graph: decides which operators share a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import tvm
from tvm import relax

from fusion.bindings import is_call_tir
from fusion.facts import PassResult, TellingPass
from partition.access import MappingKind
from partition.chains import ChainMatch, read_chain, read_products
from partition.dataflow import DataflowNode, Groups, anchors_of, read_graph
from partition.emit_groups import emit_groups
from partition.explore import explore
from partition.formed import Grouping, Kept
from partition.joins import sources_of, why_not_merged
from partition.products import read_layers, read_producer, read_sibling
from partition.profitability import Profitability, ProfitabilityCache, no_template
from partition.regions import Edge
from partition.rules import why_not_joined
from partition.techniques import ALL, Technique
from partition.windows import read_convolutions, read_projection, read_window

_EXPLORED = frozenset({Technique.EPILOGUE, Technique.STITCHING, Technique.INTENSIVE})
"""The techniques that have to be enabled for `explore`, which weighs kernels of all three kinds."""


@dataclass(frozen=True)
class FormGroups(TellingPass[Grouping]):
    """`y = call_tir(conv, x, w); z = call_tir(relu, y)`  ->  `z = group0(x, w)` with both calls in the private
    `group0`.

    Three steps:
    1. Greedy: nodes are visited in order of execution, and each joins the groups of its producers where a rule allows
       it and the graph of groups stays acyclic.
    2. `explore`: where one join prevented another, the partition of the region that saves most memory traffic is taken.
    3. Groups with matmuls or convolutions that read each other become one kernel where that is estimated to be faster.

    Attributes:
        profitability: Why a kernel with several anchors is slower than its parts; refuses all of them by default.
        techniques: The kinds of fusion to use.
        start_bytes: The cost of starting a kernel, in bytes of memory traffic.
        like: The groups to form in place of the best ones: those of the same graph at other sizes, for example.
    """

    profitability: Profitability = no_template
    techniques: frozenset[Technique] = ALL
    start_bytes: int = 0
    like: Grouping | None = None
    name: str = "form_groups"

    def run(self, mod: tvm.IRModule) -> PassResult[Grouping]:
        """Return the module with a function for each group, and a record of the groups and of the edges between
        them."""
        nodes = read_graph(mod)
        if self.like is None:
            groups, edges = self.join(nodes)
            apart = [edge for edge in edges if groups.of(edge[0]) is not groups.of(edge[1])]
            kept = tuple(Kept.of(*edge) for edge in apart)
        else:
            groups, kept = self.like.of(nodes), self.like.kept
        made, formed = emit_groups(mod, groups, nodes)
        return PassResult(made, Grouping(formed, kept, groups.places))

    def join(self, nodes: list[DataflowNode]) -> tuple[Groups, list[Edge]]:
        """Return the groups of `nodes`, and the edges between them with the reasons why they were not fused."""
        groups, profitability = Groups(nodes), ProfitabilityCache(self.profitability)
        kept = [edge for node in nodes for edge in self._join(node, groups, profitability)]
        if self.techniques >= _EXPLORED:
            kept += explore(groups, kept, profitability, self.start_bytes)
        if Technique.INTENSIVE in self.techniques:
            kept += [edge for node in nodes for edge in _join_layers(node, groups, profitability)]
        reasons = {(producer, node): reason for producer, node, reason in (*kept, *_through_tuples(nodes))}
        return groups, [(*edge, reason) for edge, reason in reasons.items()]

    def _join(self, node: DataflowNode, groups: Groups, profitability: ProfitabilityCache) -> list[Edge]:
        """Merge `node` into the groups of its producers where it may be; return the other edges, with reasons."""
        if not is_call_tir(node.value):
            return []
        if node.access.kind is MappingKind.OPAQUE:
            calls = (source for source in node.inputs if is_call_tir(source.value))
            return [(source, node, why_not_joined([source], node)) for source in calls]
        chain = None
        if Technique.INTENSIVE in self.techniques:
            _merge_siblings(node, groups, profitability)
            chain = _find_chain(node, groups, profitability)
        if chain is not None and chain.first is not None:
            groups.merge(chain.first, *chain.operands, chain.rows, node)
        kept = []
        for producer in sources_of(node):
            if groups.of(producer) is groups.of(node):
                continue
            if chain is not None and producer is chain.rows:
                reason = chain.reason
            else:
                reason = why_not_merged(groups, producer, node, profitability) or self._left_out(groups.of(producer))
            if reason:
                kept.append((producer, node, reason))
            else:
                groups.merge(producer, node)
        return kept

    def _left_out(self, producers: list[DataflowNode]) -> str:
        """Return the reason if the technique by which a node would join `producers` is disabled; "" if it is
        enabled."""
        technique = Technique.EPILOGUE if anchors_of(producers) else Technique.STITCHING
        return "" if technique in self.techniques else f"left out: {technique.value}"


def _merge_siblings(node: DataflowNode, groups: Groups, profitability: ProfitabilityCache) -> None:
    """Merge a matmul with another that has the same left operand, if one kernel for both is faster."""
    sibling = read_sibling(groups, node, profitability)
    if sibling is not None:
        groups.merge(sibling, node)


def _find_chain(node: DataflowNode, groups: Groups, profitability: ProfitabilityCache) -> ChainMatch | None:
    """Return the chain that ends in `node`; None if there is none."""
    chains = (read(groups, node, profitability) for read in (read_chain, read_window, read_producer))
    return next((chain for chain in chains if chain is not None), None)


def _join_layers(node: DataflowNode, groups: Groups, profitability: ProfitabilityCache) -> Iterator[Edge]:
    """Merge a matmul or convolution, with its epilogue, into the kernel that computes its left operand. Done last, when
    both have their epilogues, and the chains that gain more are formed."""
    readers = (read_layers, read_products, read_convolutions, read_projection)
    layers = next((found for read in readers if (found := read(groups, node, profitability)) is not None), None)
    if layers is None:
        return
    if layers.first is None:
        yield layers.rows, node, layers.reason
    else:
        groups.merge(layers.rows, *layers.operands, node)


def _through_tuples(nodes: list[DataflowNode]) -> Iterator[Edge]:
    """Yield the edges from kernels with several results, whose consumers read items of a tuple."""
    for node in nodes:
        for part in node.inputs if is_call_tir(node.value) else ():
            producers = part.inputs if isinstance(part.value, relax.TupleGetItem) else []
            yield from ((m, node, f"{m.name} has several results") for m in producers if is_call_tir(m.value))
