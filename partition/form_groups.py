"""Finds neighbours that may share a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import tvm
from tvm import relax

from fusion.bindings import is_call_tir
from fusion.facts import PassResult, TellingPass
from partition.access import MappingKind
from partition.chains import Found, read_chain, read_products
from partition.dataflow import DataflowNode, Groups, anchors_of, read_graph
from partition.emit_groups import emit_groups
from partition.explore import explore
from partition.formed import Grouping, Kept
from partition.joins import sources_of, why_not_merged
from partition.products import read_layers, read_maker, read_sibling
from partition.profitability import Profitability, ProfitabilityCache, no_template
from partition.regions import Edge
from partition.rules import why_not_joined
from partition.techniques import ALL, Technique
from partition.windows import read_convolutions, read_projection, read_window

_EXPLORED = frozenset({Technique.EPILOGUE, Technique.STITCHING, Technique.INTENSIVE})
"""What makes the kernels that exploration weighs."""


@dataclass(frozen=True)
class FormGroups(TellingPass[Grouping]):
    """`y = call_tir(conv, x, w); z = call_tir(relu, y)`  ->  `z = group0(x, w)` with both calls in the private
    `group0`.

    Nodes are visited in order of execution; each joins the groups of its producers where a rule allows it and the
    graph of groups stays acyclic. Where joins stood in each other's way, the kernels that save most are chosen. Groups
    of matmuls and convolutions are then asked whether they are the layers of one kernel.

    Attributes:
        profitability: Which chains of products become one kernel; none unless given.
        techniques: What may share a kernel.
        start_bytes: What the start of a kernel is worth, in bytes that need not go through memory.
        like: The groups of the same graph at other sizes, or of parts of the kernels that were formed of it, in place
            of those that would be best.
    """

    profitability: Profitability = no_template
    techniques: frozenset[Technique] = ALL
    start_bytes: int = 0
    like: Grouping | None = None
    name: str = "form_groups"

    def run(self, mod: tvm.IRModule) -> PassResult[Grouping]:
        """Return the module of the groups, and what became of each and of the edges between them."""
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
        """Return the groups of `nodes`, and the edges that were kept."""
        groups, profitability = Groups(nodes), ProfitabilityCache(self.profitability)
        kept = [edge for node in nodes for edge in self._join(node, groups, profitability)]
        if self.techniques >= _EXPLORED:
            kept += explore(groups, kept, profitability, self.start_bytes)
        if Technique.INTENSIVE in self.techniques:
            kept += [edge for node in nodes for edge in _join_layers(node, groups, profitability)]
        reasons = {(producer, node): reason for producer, node, reason in (*kept, *_through_tuples(nodes))}
        return groups, [(*edge, reason) for edge, reason in reasons.items()]

    def _join(self, node: DataflowNode, groups: Groups, profitability: ProfitabilityCache) -> list[Edge]:
        """Put `node` into a group; returns the edges that stay as they are, and why."""
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
        """Return that the technique by which a node would join `producers` is left out; "" where it is not."""
        technique = Technique.EPILOGUE if anchors_of(producers) else Technique.STITCHING
        return "" if technique in self.techniques else f"left out: {technique.value}"


def _merge_siblings(node: DataflowNode, groups: Groups, profitability: ProfitabilityCache) -> None:
    """Put a matmul into the kernel of another that reads the same rows."""
    sibling = read_sibling(groups, node, profitability)
    if sibling is not None:
        groups.merge(sibling, node)


def _find_chain(node: DataflowNode, groups: Groups, profitability: ProfitabilityCache) -> Found | None:
    """Return the chain that ends in `node`, where there is one."""
    chains = (read(groups, node, profitability) for read in (read_chain, read_window, read_maker))
    return next((chain for chain in chains if chain is not None), None)


def _join_layers(node: DataflowNode, groups: Groups, profitability: ProfitabilityCache) -> Iterator[Edge]:
    """Put a product or a convolution, and what is behind it, into the kernel that makes its left operand; asked when
    both have all that joins them, and after the chains that are worth more."""
    readers = (read_layers, read_products, read_convolutions, read_projection)
    layers = next((found for read in readers if (found := read(groups, node, profitability)) is not None), None)
    if layers is None:
        return
    if layers.first is None:
        yield layers.rows, node, layers.reason
    else:
        groups.merge(layers.rows, *layers.operands, node)


def _through_tuples(nodes: list[DataflowNode]) -> Iterator[Edge]:
    """Yield the edges from kernels with several results, which are read as parts of a tuple."""
    for node in nodes:
        for part in node.inputs if is_call_tir(node.value) else ():
            makers = part.inputs if isinstance(part.value, relax.TupleGetItem) else []
            yield from ((m, node, f"{m.name} has several results") for m in makers if is_call_tir(m.value))
