"""Finds regions in which joining neighbours one after the other may have missed a better partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partition.access import MATMUL, MappingKind
from partition.chains import operand
from partition.dataflow import DataflowNode, Groups, anchors_of
from partition.joins import MOVES, join_parts
from partition.products import are_products_of
from partition.profitability import ProfitabilityCache

_MOST_NODES = 32
"""Of a region. The largest of the zoo has 23."""

_REACH = 64
"""How many nodes later a contested consumer may come: the search for a path between the two takes as long."""

Edge = tuple[DataflowNode, DataflowNode, str]
"""Producer, consumer, and why they stay apart."""


def find_regions(
    groups: Groups, kept: Sequence[Edge], profitability: ProfitabilityCache
) -> Iterator[list[list[DataflowNode]]]:
    """Yield groups that contested edges connect, in order of execution.

    A kept edge is contested if its two ends alone may be one kernel: other joins stood in the way. Edges
    between two kernels with complex operators count only behind what could not join its readers one by one: each
    residual would make a region of its network.
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
    """Return what another partition may put into different kernels: each member by itself, but for what ends in complex
    operators, which is one part. What makes the rows of matmuls is not of it."""
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
