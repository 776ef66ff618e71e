"""Recognises matmuls that may share a kernel: those with the same left operand, and with what computes it."""

from __future__ import annotations

from collections.abc import Sequence

from partition.access import MATMUL, MappingKind
from partition.chains import ChainMatch, operand
from partition.dataflow import DataflowNode, Groups, anchors_of
from partition.profitability import ProfitabilityCache

_ROW_WISE = (MappingKind.ELEMENTWISE, MappingKind.REORDER, MappingKind.GATHER, MappingKind.ROWS, MappingKind.REDUCTION)

MOST_PRODUCTS = 16
"""The most anchors of a kernel. Without a limit, estimating ever larger kernels took 30 s for 250 matmuls of one value,
and 28 s for a chain of 40; with it, groups of equal structure are estimated once."""


def read_sibling(groups: Groups, node: DataflowNode, profitability: ProfitabilityCache) -> DataflowNode | None:
    """Return the matmul with the same left operand that comes last before `node`, if one kernel for both is faster.

    Earlier ones are not tried: there may be hundreds.
    """
    rows = operand(node, 0) if node.access.anchor == MATMUL else None
    before = (other for other in reversed(rows.consumers) if other.index < node.index) if rows is not None else iter(())
    beside = next((other for other in before if are_products_of(rows, groups.of(other))), None)
    if beside is None or _is_full(groups.of(beside)) or not groups.can_merge(beside, node):
        return None
    return None if profitability.why_not_fused([*groups.of(beside), node]) else beside


def _is_full(group: Sequence[DataflowNode]) -> bool:
    return _complex(group) >= MOST_PRODUCTS


def _complex(group: Sequence[DataflowNode]) -> int:
    return len(anchors_of(group))


def are_products_of(rows: DataflowNode | None, group: Sequence[DataflowNode]) -> bool:
    """Return whether `group` has anchors, all of which are matmuls with the left operand `rows`."""
    anchors = anchors_of(group)
    matmuls = [anchor for anchor in anchors if anchor.access.anchor == MATMUL and operand(anchor, 0) is rows]
    return bool(anchors) and len(matmuls) == len(anchors)


def read_producer(groups: Groups, node: DataflowNode, profitability: ProfitabilityCache) -> ChainMatch | None:
    """Return the chain of the matmul `node` and the memory-bound operators that compute its left operand; None if an
    anchor computes it."""
    rows = made_rows(groups, node)
    if rows is None or any(member.access.kind not in _ROW_WISE for member in groups.of(rows)):
        return None
    return with_rows(groups, rows, node, profitability)


def read_layers(groups: Groups, node: DataflowNode, profitability: ProfitabilityCache) -> ChainMatch | None:
    """Return the chain of the matmul `node` and the matmuls whose epilogue computes its left operand; None if there are
    none."""
    rows = made_rows(groups, node)
    anchors = anchors_of(groups.of(rows)) if rows is not None else []
    if rows is None or {anchor.access.anchor for anchor in anchors} != {MATMUL}:
        return None
    return with_rows(groups, rows, node, profitability)


def made_rows(groups: Groups, node: DataflowNode, kinds: Sequence[str] = (MATMUL,)) -> DataflowNode | None:
    """Return the node that computes the left operand, or the image, of the anchor `node`, if it is one of `kinds` and
    another group computes it."""
    rows = operand(node, 0) if node.access.anchor in kinds else None
    return rows if rows is not None and groups.of(rows) is not groups.of(node) else None


def with_rows(groups: Groups, rows: DataflowNode, node: DataflowNode, profitability: ProfitabilityCache) -> ChainMatch:
    """Return the group of `rows` and the group of the anchor `node`, which reads them, as a chain."""
    producers, products = groups.of(rows), groups.of(node)
    if _complex(producers) + _complex(products) > MOST_PRODUCTS:
        return ChainMatch(rows, reason=f"a kernel of more than {MOST_PRODUCTS} complex operators")
    inside = {*producers, *products}
    if any(member.escapes or not inside.issuperset(member.consumers) for member in producers if member is not rows):
        return ChainMatch(rows, reason="what makes the left operand of the product is used elsewhere")
    if not groups.can_merge(rows, node):
        return ChainMatch(rows, reason="a path between them leaves the kernel")
    reason = profitability.why_not_fused([*producers, *products])
    return ChainMatch(rows, reason=reason) if reason else ChainMatch(rows, rows)


def before_products(group: Sequence[DataflowNode]) -> set[DataflowNode]:
    """Return the members that an anchor of `group` depends on."""
    found: set[DataflowNode] = set()
    for member in reversed(group):
        if member.access.kind is MappingKind.ANCHOR or member in found:
            found.update(source for source in member.inputs if source in group)
    return found


def products_of(group: Sequence[DataflowNode], node: DataflowNode) -> list[DataflowNode]:
    """Return the anchors of `group` that `node` depends on, in order."""
    needed = set(node.inputs)
    for member in reversed(group):
        if member in needed:
            needed.update(member.inputs)
    return [anchor for anchor in anchors_of(group) if anchor in needed]


def joins_products(group: Sequence[DataflowNode], node: DataflowNode) -> bool:
    """Return whether `node` depends on several anchors of `group`, none of which depends on another."""
    before = before_products(group)
    return len([product for product in products_of(group, node) if product not in before]) > 1
