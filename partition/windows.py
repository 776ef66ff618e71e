"""Recognises chains of convolutions that may become one kernel: a convolution before a depthwise convolution or
pooling, a pointwise convolution behind it, and two convolutions in a row."""

from __future__ import annotations

from partition.access import CONV2D, DEPTHWISE, IMAGE_PRODUCERS, MATMUL
from partition.chains import ChainMatch, operand
from partition.dataflow import DataflowNode, Groups, anchors_of
from partition.products import made_rows, with_rows
from partition.profitability import ProfitabilityCache


def read_window(groups: Groups, node: DataflowNode, profitability: ProfitabilityCache) -> ChainMatch | None:
    """Return the chain that ends in `node`, a depthwise convolution or a pooling; None if no single convolution
    computes its image."""
    image = operand(node, 0) if _is_window(node) else None
    if image is None:
        return None
    before = groups.of(image)
    kinds = [anchor.access.anchor for anchor in anchors_of(before)]
    if len(kinds) != 1 or kinds[0] not in IMAGE_PRODUCERS or any(member.access.pools for member in before):
        return None
    inside = {*before, node}
    if any(member.escapes or not inside.issuperset(member.consumers) for member in before):
        return ChainMatch(image, reason="the image of the window is used elsewhere")
    if not groups.can_merge(image, node):
        return ChainMatch(image, reason="a path between them leaves the kernel")
    reason = profitability.why_not_fused([*before, node])
    return ChainMatch(image, reason=reason) if reason else ChainMatch(image, image)


def read_projection(groups: Groups, node: DataflowNode, profitability: ProfitabilityCache) -> ChainMatch | None:
    """Return the chain of a group that ends in a depthwise convolution or pooling and the pointwise convolution `node`,
    which reads it; None if there is none."""
    rows = made_rows(groups, node)
    before = groups.of(rows) if rows is not None else []
    anchors = anchors_of(before)
    windows = [member for member in before if _is_window(member)]
    if rows is None or not anchors or len(anchors) > 2 or len(windows) != 1 or anchors_of(groups.of(node)) != [node]:
        return None
    return with_rows(groups, rows, node, profitability)


def read_convolutions(groups: Groups, node: DataflowNode, profitability: ProfitabilityCache) -> ChainMatch | None:
    """Return the chain of a convolution and the convolution `node`, which reads it; None if there is none, or if both
    are matmuls."""
    image = made_rows(groups, node, (CONV2D, MATMUL))
    before = groups.of(image) if image is not None else []
    kinds = [anchor.access.anchor for anchor in anchors_of(before)]
    if image is None or len(kinds) != 1 or kinds[0] not in IMAGE_PRODUCERS or any(map(_is_window, before)):
        return None
    if {kinds[0], node.access.anchor} == {MATMUL} or anchors_of(groups.of(node)) != [node]:
        return None
    return with_rows(groups, image, node, profitability)


def _is_window(node: DataflowNode) -> bool:
    return node.access.anchor == DEPTHWISE or node.access.pools
