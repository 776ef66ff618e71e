"""Says whether the groups of two neighbours may become one, and which groups given parts become."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusion.bindings import is_call_tir
from partition.access import MappingKind
from partition.dataflow import DataflowNode, Groups, anchors_of
from partition.products import joins_products, read_maker
from partition.profitability import ProfitabilityCache
from partition.rules import why_not_joined

MOST_MEMBERS = 64
"""Of a kernel. Partition, TVM's `FuseTIR` and LLVM take time that grows with its square: 3000 elementwise operators in
a chain were 5.3 s of partition, and are 0.3. The largest group of the zoo has 18."""

MOVES = (MappingKind.REORDER, MappingKind.GATHER)
"""What shares a kernel with all that reads it, or with none of it."""


def sources_of(node: DataflowNode) -> list[DataflowNode]:
    """Return the calls that `node` reads, in the order in which it joins them: the largest first, then the latest."""
    calls = [source for source in node.inputs if is_call_tir(source.value)]
    return sorted(calls, key=lambda source: (source.access.elements, source.index), reverse=True)


def why_not_merged(
    groups: Groups,
    producer: DataflowNode,
    node: DataflowNode,
    profitability: ProfitabilityCache,
    others: Collection[DataflowNode] = (),
) -> str:
    """Return why the groups of `producer` and `node` stay apart; "" where they may be joined.

    Args:
        others: What will be in their kernel too.
    """
    mine, theirs = groups.of(node), groups.of(producer)
    if len(mine) + len(theirs) > MOST_MEMBERS:
        return f"a kernel of more than {MOST_MEMBERS} operators"
    if len(mine) > 1 and anchors_of((*mine, *theirs)):
        return "the consumer is already part of another kernel"
    inside = {*mine, *theirs, *others}
    if producer.access.kind in MOVES and (producer.escapes or not inside.issuperset(producer.consumers)):
        return "the producer has other consumers"
    for member in mine:
        reason = why_not_joined(theirs, member)
        if reason:
            return reason
    if not groups.can_merge(producer, node):
        return "a path between them leaves the kernel"
    return profitability.why_not_fused([*theirs, node]) if joins_products(theirs, node) else ""


def join_parts(
    parts: Sequence[Sequence[DataflowNode]], profitability: ProfitabilityCache, others: Collection[DataflowNode] = ()
) -> list[list[DataflowNode]]:
    """Return the groups that `parts` become when each node joins what it reads in other parts, where it may.

    Args:
        others: What will be in their kernels too.
    """
    groups = Groups(())
    for part in parts:
        groups.merge(*part)
    nodes = sorted((node for part in parts for node in part), key=lambda node: node.index)
    inside = set(nodes)
    for node in nodes:
        sources = [source for source in sources_of(node) if source in inside]
        if node.access.kind is MappingKind.ANCHOR:
            _join_maker(groups, node, sources, profitability)
            continue
        for source in sources:
            if groups.of(source) is groups.of(node):
                continue
            if not why_not_merged(groups, source, node, profitability, others):
                groups.merge(source, node)
    return list({id(groups.of(node)): groups.of(node) for node in nodes}.values())


def _join_maker(
    groups: Groups, node: DataflowNode, sources: Sequence[DataflowNode], profitability: ProfitabilityCache
) -> None:
    maker = read_maker(groups, node, profitability) if sources else None
    if maker is not None and maker.first is not None and maker.first in sources:
        groups.merge(maker.first, node)
