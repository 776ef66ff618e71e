"""Recognises a depthwise convolution of what a pointwise one makes, two anchors that may be one kernel."""

from __future__ import annotations

from partition.access import Kind
from partition.chains import Found, Judge, Merge
from partition.dataflow import Groups, Node, call_arguments

POINTWISE, DEPTHWISE = "matmul", "depthwise_conv2d"
"""Annotations of the two; the image is the first operand of the call."""


def read_window(groups: Groups, node: Node, judge: Judge, merge: Merge) -> Found | None:
    """Return the chain that ends in the depthwise convolution `node`; None where no pointwise one makes its image."""
    if node.access.anchor != DEPTHWISE:
        return None
    image = next((source for source in node.inputs if source.var.same_as(call_arguments(node.value)[0])), None)
    if image is None:
        return None
    before = groups.of(image)
    if [member.access.anchor for member in before if member.access.kind is Kind.ANCHOR] != [POINTWISE]:
        return None
    inside = {*before, node}
    if any(member.escapes or not inside.issuperset(member.consumers) for member in before):
        return Found(image, reason="the image of the window is used elsewhere")
    if not groups.can_merge(image, node):
        return Found(image, reason="a path between them leaves the kernel")
    reason = judge(merge([*before, node]))
    return Found(image, reason=reason) if reason else Found(image, image)
