"""Decides whether the groups of a producer and a consumer may be merged, and greedily merges given parts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusion.bindings import is_call_tir
from partition.access import MappingKind
from partition.dataflow import DataflowNode, Groups, anchors_of
from partition.products import joins_products, read_producer
from partition.profitability import ProfitabilityCache
from partition.rules import why_not_joined

MOST_MEMBERS = 64
"""The most operators of a kernel. The times of partition, of TVM's `FuseTIR` and of LLVM grow with its square: a chain
of 3000 elementwise operators took 5.3 s to partition without this limit, and takes 0.3 s. The largest group of the zoo
has 18 operators."""

MOST_TERMS = 256
"""The most elements of operands in the expression that a kernel stores, every operator in it written in the place of
its result, as TVM's simplifier has it: x (1 - x / 10) twenty times has a million, and took 177 s to compile; 81 in
nested choices took 3 s."""

MOVES = (MappingKind.REORDER, MappingKind.GATHER)
"""Kinds that are fused with all of their consumers, or with none of them."""


def sources_of(node: DataflowNode) -> list[DataflowNode]:
    """Return the producers of `node` in the order in which to try to merge it with them: the largest result first, then
    the latest."""
    calls = [source for source in node.inputs if is_call_tir(source.value)]
    return sorted(calls, key=lambda source: (source.access.elements, source.index), reverse=True)


def why_not_merged(
    groups: Groups,
    producer: DataflowNode,
    node: DataflowNode,
    profitability: ProfitabilityCache,
    others: Collection[DataflowNode] = (),
) -> str:
    """Return why the groups of `producer` and `node` must not be merged; "" if they may.

    Args:
        others: Further nodes that will be in the same kernel.
    """
    mine, theirs = groups.of(node), groups.of(producer)
    if len(mine) + len(theirs) > MOST_MEMBERS:
        return f"a kernel of more than {MOST_MEMBERS} operators"
    if len(mine) > 1 and anchors_of((*mine, *theirs)):
        return "the consumer is already part of another kernel"
    if _terms((*theirs, *mine)) > MOST_TERMS:
        return f"an expression of more than {MOST_TERMS} terms"
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


def _terms(members: Collection[DataflowNode]) -> int:
    """Return how many elements of operands are in the longest expression of a kernel; what other than elementwise
    operators make is one."""
    terms: dict[DataflowNode, int] = {}
    for node in sorted(members, key=lambda node: node.index):
        is_written_out = node.access.kind is MappingKind.ELEMENTWISE
        inputs = sum(terms.get(source, 1) for source in node.operands)
        terms[node] = max(1, node.access.reads * inputs) if is_written_out else 1
    return max(terms.values())


def join_parts(
    parts: Sequence[Sequence[DataflowNode]], profitability: ProfitabilityCache, others: Collection[DataflowNode] = ()
) -> list[list[DataflowNode]]:
    """Return the groups that `parts` become when each node is merged greedily with its producers in other parts.

    Args:
        others: Further nodes that will be in the same kernels.
    """
    groups = Groups(())
    for part in parts:
        groups.merge(*part)
    nodes = sorted((node for part in parts for node in part), key=lambda node: node.index)
    inside = set(nodes)
    for node in nodes:
        sources = [source for source in sources_of(node) if source in inside]
        if node.access.kind is MappingKind.ANCHOR:
            _join_producer(groups, node, sources, profitability)
            continue
        for source in sources:
            if groups.of(source) is groups.of(node):
                continue
            if not why_not_merged(groups, source, node, profitability, others):
                groups.merge(source, node)
    return list({id(groups.of(node)): groups.of(node) for node in nodes}.values())


def _join_producer(
    groups: Groups, node: DataflowNode, sources: Sequence[DataflowNode], profitability: ProfitabilityCache
) -> None:
    producer = read_producer(groups, node, profitability) if sources else None
    if producer is not None and producer.first is not None and producer.first in sources:
        groups.merge(producer.first, node)
