"""The rules by which a node may join a group. Each returns the reason why not, which `explain()` shows, or ""."""

from __future__ import annotations

from partition.access import MappingKind
from partition.dataflow import DataflowNode, anchors_of
from partition.products import before_products, products_of

RECOMPUTE_ELEMENTS = 4096  # a value this small may be computed once per consumer row rather than stored


def why_not_joined(group: list[DataflowNode], node: DataflowNode) -> str:
    """Return why `node`, which reads a member of `group`, must not join it; "" if it may."""
    if node.access.kind in (MappingKind.OPAQUE, MappingKind.ANCHOR):
        return f"{node.name or 'the consumer'} is {_article(node.access.kind)}"
    if anchors_of(group):
        return _why_not_epilogue(group, node)
    if any(member.access.kind is MappingKind.OPAQUE for member in group):
        return "the producer is not analysed"
    return _why_not_stitched(group, node)


def _article(kind: MappingKind) -> str:
    return "a complex operator" if kind is MappingKind.ANCHOR else "not analysed"


def _why_not_epilogue(group: list[DataflowNode], node: DataflowNode) -> str:
    """Return why `node` is no epilogue: no map from each element of the anchor's result to one element of its own."""
    anchors = products_of(group, node)
    if not anchors or not before_products(group).isdisjoint(node.inputs):
        return f"{node.name} reads what the kernel makes for its products"
    anchor = max((*anchors, *(member for member in group if member.access.pools)), key=lambda member: member.index)
    if node.access.kind not in (MappingKind.ELEMENTWISE, MappingKind.REORDER):
        return f"{node.name} is a {node.access.kind.value}, not an epilogue"
    if node.access.elements != anchor.access.elements:
        return f"{node.name} has another size than the anchor's result"
    if not node.access.keeps_last:
        return f"{node.name} moves the contiguous axis"
    if any(member in node.inputs and member.access.elements != node.access.elements for member in group):
        return f"{node.name} broadcasts the anchor's result"
    return ""


def _why_not_stitched(group: list[DataflowNode], node: DataflowNode) -> str:
    """Return why `node` and `group`, all memory-bound, cannot be computed row by row in one kernel."""
    kinds = {member.access.kind for member in group} | {node.access.kind}
    if MappingKind.REDUCTION in kinds:
        return _why_not_with_reduction(group, node)
    if MappingKind.ROWS in kinds:
        return _why_not_with_rows(group, node)
    moved = [
        member
        for member in (*group, node)
        if member.access.kind is MappingKind.REORDER and not member.access.keeps_last
    ]
    if len(moved) > 1 or (moved and moved[0] is not node):
        return "a transpose of the contiguous axis ends its kernel"
    if node.access.elements < max(member.access.elements for member in group):
        return f"{node.name} reads only a part of its producer"
    grows = node.access.elements > group[-1].access.elements
    if grows and any(member.access.elements > RECOMPUTE_ELEMENTS for member in group if member in node.inputs):
        return f"{node.name} would compute its producer again for every row"
    return ""


def _why_not_with_reduction(group: list[DataflowNode], node: DataflowNode) -> str:
    if node.access.kind is MappingKind.REDUCTION:
        return f"{node.name} reduces leading axes"
    reduction = group[-1]
    if reduction.access.kind is MappingKind.REDUCTION and node.access.kind is MappingKind.ELEMENTWISE:
        return (
            "" if node.access.elements == reduction.access.elements else f"{node.name} is larger than the reduced value"
        )
    return "the producer reduces leading axes"


def _why_not_with_rows(group: list[DataflowNode], node: DataflowNode) -> str:
    rows = {member.access.rows for member in (*group, node) if member.access.kind is MappingKind.ROWS}
    if len(rows) > 1:
        return f"{node.name} has other rows"
    leading = next(iter(rows))
    for member in (*group, node):
        if member.access.kind is MappingKind.REORDER and member.access.moves:
            return "a transpose stands between rows"
        dense = tuple(extent for extent in member.access.shape if extent != 1)
        if dense[: len(leading)] != leading and member.access.elements > RECOMPUTE_ELEMENTS:
            return f"{member.name} has other rows"
    return ""
