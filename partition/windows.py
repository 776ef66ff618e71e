"""Recognises convolutions of what others make, and windows with convolutions before and behind them, which may be one
kernel."""

from __future__ import annotations

from partition.access import CONV2D, DEPTHWISE, IMAGE_MAKERS, MATMUL
from partition.chains import Found, operand
from partition.dataflow import DataflowNode, Groups, anchors_of
from partition.products import made_rows, with_rows
from partition.profitability import ProfitabilityCache


def read_window(groups: Groups, node: DataflowNode, profitability: ProfitabilityCache) -> Found | None:
    """Return the chain that ends in the depthwise convolution or the pool `node`; None where no convolution makes its
    image."""
    image = operand(node, 0) if _is_window(node) else None
    if image is None:
        return None
    before = groups.of(image)
    kinds = [anchor.access.anchor for anchor in anchors_of(before)]
    if len(kinds) != 1 or kinds[0] not in IMAGE_MAKERS or any(member.access.pools for member in before):
        return None
    inside = {*before, node}
    if any(member.escapes or not inside.issuperset(member.consumers) for member in before):
        return Found(image, reason="the image of the window is used elsewhere")
    if not groups.can_merge(image, node):
        return Found(image, reason="a path between them leaves the kernel")
    reason = profitability.why_not_fused([*before, node])
    return Found(image, reason=reason) if reason else Found(image, image)


def read_projection(groups: Groups, node: DataflowNode, profitability: ProfitabilityCache) -> Found | None:
    """Return the chain of a kernel that ends in a window and of the pointwise convolution `node` behind it; None where
    there is none."""
    rows = made_rows(groups, node)
    before = groups.of(rows) if rows is not None else []
    anchors = anchors_of(before)
    windows = [member for member in before if _is_window(member)]
    if rows is None or not anchors or len(anchors) > 2 or len(windows) != 1 or anchors_of(groups.of(node)) != [node]:
        return None
    return with_rows(groups, rows, node, profitability)


def read_convolutions(groups: Groups, node: DataflowNode, profitability: ProfitabilityCache) -> Found | None:
    """Return the kernels of a convolution and of the convolution `node` of what it makes as a chain; None where there
    are none, or both are matmuls."""
    image = made_rows(groups, node, (CONV2D, MATMUL))
    before = groups.of(image) if image is not None else []
    kinds = [anchor.access.anchor for anchor in anchors_of(before)]
    if image is None or len(kinds) != 1 or kinds[0] not in IMAGE_MAKERS or any(map(_is_window, before)):
        return None
    if {kinds[0], node.access.anchor} == {MATMUL} or anchors_of(groups.of(node)) != [node]:
        return None
    return with_rows(groups, image, node, profitability)


def _is_window(node: DataflowNode) -> bool:
    return node.access.anchor == DEPTHWISE or node.access.pools
