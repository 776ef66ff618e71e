"""Recognises matmuls that may share a kernel because they have the same left operand, and what makes its rows."""

from __future__ import annotations

from collections.abc import Sequence

from partition.access import MATMUL, MappingKind
from partition.chains import Found, operand
from partition.dataflow import DataflowNode, Groups, anchors_of
from partition.profitability import ProfitabilityCache

_ROW_WISE = (MappingKind.ELEMENTWISE, MappingKind.REORDER, MappingKind.GATHER, MappingKind.ROWS, MappingKind.REDUCTION)

MOST_PRODUCTS = 16
"""In a kernel. Without a limit, judging ever larger kernels took 30 s with 250 products of one value, and 28 s with 40
products of each other; with it, groups of equal shape are judged once."""


def read_sibling(groups: Groups, node: DataflowNode, profitability: ProfitabilityCache) -> DataflowNode | None:
    """Return the matmul before `node` of the same left operand if its kernel is the faster with `node` in it.

    No earlier one is asked for: there may be hundreds.
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
    """Return whether `group` has complex operators, and all are matmuls with the left operand `rows`."""
    anchors = anchors_of(group)
    matmuls = [anchor for anchor in anchors if anchor.access.anchor == MATMUL and operand(anchor, 0) is rows]
    return bool(anchors) and len(matmuls) == len(anchors)


def read_maker(groups: Groups, node: DataflowNode, profitability: ProfitabilityCache) -> Found | None:
    """Return what makes the rows of the matmul `node` as a chain with it; None where a complex operator does."""
    rows = made_rows(groups, node)
    if rows is None or any(member.access.kind not in _ROW_WISE for member in groups.of(rows)):
        return None
    return with_rows(groups, rows, node, profitability)


def read_layers(groups: Groups, node: DataflowNode, profitability: ProfitabilityCache) -> Found | None:
    """Return the matmuls whose epilogue makes the rows of the matmul `node` as a chain with it; None where none do."""
    rows = made_rows(groups, node)
    anchors = anchors_of(groups.of(rows)) if rows is not None else []
    if rows is None or {anchor.access.anchor for anchor in anchors} != {MATMUL}:
        return None
    return with_rows(groups, rows, node, profitability)


def made_rows(groups: Groups, node: DataflowNode, kinds: Sequence[str] = (MATMUL,)) -> DataflowNode | None:
    """Return the node that makes the left operand, or the image, of the product `node` in another kernel."""
    rows = operand(node, 0) if node.access.anchor in kinds else None
    return rows if rows is not None and groups.of(rows) is not groups.of(node) else None


def with_rows(groups: Groups, rows: DataflowNode, node: DataflowNode, profitability: ProfitabilityCache) -> Found:
    """Return the kernel that makes `rows` and that of the product `node`, which reads them, as a chain."""
    makers, products = groups.of(rows), groups.of(node)
    if _complex(makers) + _complex(products) > MOST_PRODUCTS:
        return Found(rows, reason=f"a kernel of more than {MOST_PRODUCTS} complex operators")
    inside = {*makers, *products}
    if any(member.escapes or not inside.issuperset(member.consumers) for member in makers if member is not rows):
        return Found(rows, reason="what makes the left operand of the product is used elsewhere")
    if not groups.can_merge(rows, node):
        return Found(rows, reason="a path between them leaves the kernel")
    reason = profitability.why_not_fused([*makers, *products])
    return Found(rows, reason=reason) if reason else Found(rows, rows)


def before_products(group: Sequence[DataflowNode]) -> set[DataflowNode]:
    """Return the members that a complex operator of `group` depends on."""
    found: set[DataflowNode] = set()
    for member in reversed(group):
        if member.access.kind is MappingKind.ANCHOR or member in found:
            found.update(source for source in member.inputs if source in group)
    return found


def products_of(group: Sequence[DataflowNode], node: DataflowNode) -> list[DataflowNode]:
    """Return the complex operators of `group` that `node`, or what it reads there, depends on, in order."""
    needed = set(node.inputs)
    for member in reversed(group):
        if member in needed:
            needed.update(member.inputs)
    return [anchor for anchor in anchors_of(group) if anchor in needed]


def joins_products(group: Sequence[DataflowNode], node: DataflowNode) -> bool:
    """Return whether `node` needs the results of several products of which none depends on another."""
    before = before_products(group)
    return len([product for product in products_of(group, node) if product not in before]) > 1
