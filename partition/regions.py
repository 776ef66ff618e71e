"""Finds the regions in which the greedy partition may have missed a better one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partition.access import MATMUL, MappingKind
from partition.chains import operand
from partition.dataflow import DataflowNode, Groups, anchors_of
from partition.joins import MOVES, join_parts
from partition.products import are_products_of
from partition.profitability import ProfitabilityCache

_MOST_NODES = 32
"""The most nodes of a region. The largest of the zoo has 23."""

_REACH = 64
"""How many nodes may lie between the ends of a contested edge: the time to search a path between them grows with it."""

Edge = tuple[DataflowNode, DataflowNode, str]
"""Producer, consumer, and why they were not fused."""


def find_regions(
    groups: Groups, kept: Sequence[Edge], profitability: ProfitabilityCache
) -> Iterator[list[list[DataflowNode]]]:
    """Yield the regions: groups that are connected by contested edges, in the order of execution.

    A kept edge is contested if its two ends could be one kernel by themselves, so that only other joins prevented it.
    An edge between two groups with anchors counts only if its producer has several consumers and has to be fused with
    all of them; otherwise the residual connections would make one region of a whole network.
    """
    home: dict[int, list[list[DataflowNode]]] = {}
    for producer, node, _ in kept:
        pair = groups.of(producer), groups.of(node)
        if pair[0] is pair[1] or not _is_contested(groups, producer, node, profitability):
            continue
        first, second = (home.setdefault(id(group), [group]) for group in pair)
        if first is not second and sum(map(len, (*first, *second))) <= _MOST_NODES:
            first += second
            home.update((id(group), first) for group in second)
    regions = {id(region): region for region in home.values() if len(region) > 1}
    for region in regions.values():
        yield sorted(region, key=lambda group: group[0].index)


def parts_of(group: Sequence[DataflowNode]) -> list[list[DataflowNode]]:
    """Split a group into the parts that another partition may put into different kernels: the anchors with what they
    depend on are one part, every other member is one by itself. What computes the left operand of matmuls does not
    count as part of these."""
    ends = [member for member in group if member.access.kind is MappingKind.ANCHOR or member.access.pools]
    fixed = set(ends)
    if ends and not are_products_of(operand(ends[0], 0), group):
        for member in reversed(group):
            if member in fixed:
                fixed.update(source for source in member.inputs if source in group)
    core = [member for member in group if member in fixed]
    return [*([core] if core else []), *([member] for member in group if member not in fixed)]


def _is_contested(
    groups: Groups, producer: DataflowNode, node: DataflowNode, profitability: ProfitabilityCache
) -> bool:
    if MappingKind.OPAQUE in (producer.access.kind, node.access.kind) or node.index - producer.index > _REACH:
        return False
    is_shared = producer.access.kind in MOVES and 1 < len(producer.consumers) < _MOST_NODES
    pair = groups.of(producer), groups.of(node)
    if all(map(anchors_of, pair)) and not is_shared:
        return False
    if node.access.kind is MappingKind.ANCHOR and (node.access.anchor != MATMUL or operand(node, 0) is not producer):
        return False
    ends = [next(part for part in parts_of(groups.of(end)) if end in part) for end in (producer, node)]
    if not is_shared and list(map(len, ends)) == list(map(len, pair)):
        return False
    return len(join_parts(ends, profitability, producer.consumers if is_shared else ())) == 1
