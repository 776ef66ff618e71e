"""Recognises depthwise convolutions with the pointwise ones before and behind them, which may be one kernel."""

from __future__ import annotations

from partition.access import DEPTHWISE, MATMUL
from partition.chains import Found, operand
from partition.dataflow import Groups, Node, anchors_of
from partition.products import made_rows, with_rows
from partition.verdicts import Verdicts


def read_window(groups: Groups, node: Node, verdicts: Verdicts) -> Found | None:
    """Return the chain that ends in the depthwise convolution `node`; None where no pointwise one makes its image."""
    if node.access.anchor != DEPTHWISE:
        return None
    image = operand(node, 0)
    if image is None:
        return None
    before = groups.of(image)
    if [anchor.access.anchor for anchor in anchors_of(before)] != [MATMUL]:
        return None
    inside = {*before, node}
    if any(member.escapes or not inside.issuperset(member.consumers) for member in before):
        return Found(image, reason="the image of the window is used elsewhere")
    if not groups.can_merge(image, node):
        return Found(image, reason="a path between them leaves the kernel")
    reason = verdicts.decline([*before, node])
    return Found(image, reason=reason) if reason else Found(image, image)


def read_projection(groups: Groups, node: Node, verdicts: Verdicts) -> Found | None:
    """Return the chain of a kernel that ends in a depthwise convolution and of the pointwise one `node` behind it; None
    where there is none."""
    rows = made_rows(groups, node)
    before = [anchor.access.anchor for anchor in anchors_of(groups.of(rows))] if rows is not None else []
    if rows is None or before not in ([DEPTHWISE], [MATMUL, DEPTHWISE]) or anchors_of(groups.of(node)) != [node]:
        return None
    return with_rows(groups, rows, node, verdicts)
