"""Recognises two batched matmuls that may become one kernel: attention, `softmax(q k) v`, with row-wise operators
between them, or the one reading the other's epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusion.bindings import call_arguments
from partition.access import BATCH_MATMUL, MappingKind, dense
from partition.dataflow import DataflowNode, Groups, anchors_of
from partition.profitability import ProfitabilityCache


@dataclass(frozen=True)
class ChainMatch:
    """A chain of anchors in the graph, which may become one kernel.

    Attributes:
        rows: The node that computes the left operand of the last anchor.
        first: A node of the group of the first anchor; None if the chain stays in several kernels.
        reason: Why it stays so; "" if it does not.
        operands: Transposes of operands of the anchors that join the kernel, which then reads what they transpose.
    """

    rows: DataflowNode
    first: DataflowNode | None = None
    reason: str = ""
    operands: tuple[DataflowNode, ...] = ()


def read_chain(groups: Groups, node: DataflowNode, profitability: ProfitabilityCache) -> ChainMatch | None:
    """Match attention: return the chain that ends in the batched matmul `node`; None if `node` is none, or if no
    reduction of rows precedes it."""
    rows = operand(node, 0) if node.access.anchor == BATCH_MATMUL else None
    if rows is None or not any(member.access.kind is MappingKind.ROWS for member in groups.of(rows)):
        return None
    first = _first(groups, groups.of(rows))
    if first is None:
        return ChainMatch(rows, reason="no product makes the rows that it reads")
    return _with_operands(groups, first, rows, node, profitability)


def read_products(groups: Groups, node: DataflowNode, profitability: ProfitabilityCache) -> ChainMatch | None:
    """Return the chain of the batched matmul `node` and the one whose epilogue computes its left operand; None if there
    is none."""
    rows = operand(node, 0) if node.access.anchor == BATCH_MATMUL else None
    if rows is None or groups.of(rows) is groups.of(node):
        return None
    if not all(map(_is_product, (groups.of(rows), groups.of(node)))):
        return None
    return _with_operands(groups, rows, rows, node, profitability)


def _with_operands(
    groups: Groups, first: DataflowNode, rows: DataflowNode, node: DataflowNode, profitability: ProfitabilityCache
) -> ChainMatch:
    """Return the chain of the matmuls `first` and `node` with what computes `rows`, and with as many transposes of
    their operands as still make it faster than separate kernels."""
    reason = _why_not_chained(groups, rows, first, node)
    if reason:
        return ChainMatch(rows, reason=reason)
    parts = dict.fromkeys(member for part in (first, rows, node) for member in groups.of(part))
    transposes = _transposes(groups, (_anchor(groups.of(first)), node))
    for operands in dict.fromkeys((transposes, tuple(source for source in transposes if source.access.keeps_last), ())):
        reason = profitability.why_not_fused([*operands, *parts])
        if not reason and groups.can_merge(*operands, rows, first, node):
            return ChainMatch(rows, first, operands=operands)
    return ChainMatch(rows, reason=reason)


def _transposes(groups: Groups, products: Sequence[DataflowNode]) -> tuple[DataflowNode, ...]:
    """Return the transposes that only one of `products` reads and that are groups of their own; for left operands only
    those that keep rows contiguous."""
    sources = ((product, operand(product, side), side) for product in products for side in range(2))
    found = (
        source
        for product, source, side in sources
        if source is not None
        and source.access.kind is MappingKind.REORDER
        and source.access.moves
        and not source.escapes
        if groups.of(source) == [source] and source.consumers == [product] and (side == 1 or source.access.keeps_last)
    )
    return tuple(dict.fromkeys(found))


def operand(node: DataflowNode, position: int) -> DataflowNode | None:
    """Return the node that computes the argument of `node` at `position`; None if that is a parameter or a constant."""
    argument = call_arguments(node.value)[position]
    return next((source for source in node.inputs if source.var.same_as(argument)), None)


def _first(groups: Groups, middle: list[DataflowNode]) -> DataflowNode | None:
    """Return a node of the group of a batched matmul that `middle` reads, if the result has the shape of that of
    `middle`."""
    for member in middle:
        for source in member.inputs:
            group = groups.of(source)
            if _is_product(group) and _anchor(group).access.shape == middle[-1].access.shape:
                return source
    return None


def _is_product(group: list[DataflowNode]) -> bool:
    """Return whether a group has one anchor, a batched matmul."""
    return [anchor.access.anchor for anchor in anchors_of(group)] == [BATCH_MATMUL]


def _anchor(group: list[DataflowNode]) -> DataflowNode:
    return anchors_of(group)[0]


def _why_not_chained(groups: Groups, rows: DataflowNode, first: DataflowNode, node: DataflowNode) -> str:
    before = groups.of(first)
    middle = groups.of(rows) if groups.of(rows) is not before else []
    scores = _anchor(before).access.shape
    lead = scores[:-1]
    inside = {*middle, *before, *groups.of(node)}
    if any(member.escapes or not inside.issuperset(member.consumers) for member in (*middle, *before)):
        return "a value between the products is used elsewhere"
    if node.access.shape[:-1] != lead:
        return "the products have other batches"
    if operand(node, 1) in inside:
        return "both operands are made inside the kernel"
    if any(member.access.kind is MappingKind.REORDER for member in before) or (
        middle and not _is_row_wise(middle, scores)
    ):
        return "what stands between the products is not row-wise"
    return "" if groups.can_merge(rows, first, node) else "a path between them leaves the kernel"


def _is_row_wise(middle: list[DataflowNode], scores: tuple[int, ...]) -> bool:
    """Return whether every member maps each row of `scores` to a row of the same length, or to one number."""
    lead, widths = scores[:-1], ((), (1,), scores[-1:])
    kinds = {member.access.kind for member in middle}
    reduced = {member.access.rows for member in middle if member.access.kind is MappingKind.ROWS}
    shapes = [member.access.shape for member in middle]
    same = all(shape[: len(lead)] == lead and shape[len(lead) :] in widths for shape in shapes)
    return kinds <= {MappingKind.ELEMENTWISE, MappingKind.ROWS} and reduced == {dense(lead)} and same
