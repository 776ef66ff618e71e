"""Operators of the first sets whose nodes mean something else in newer ones."""

from __future__ import annotations

from fusion.frontends.onnx.fused.body import Body, expands

# Since these sets operands broadcast as in NumPy, Concat has no default, and Pad calls its attribute otherwise.
_NUMPY, _NAMED_AXIS, _PADS = 7, 4, 2


@expands("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor", domain="", below=_NUMPY)
def broadcast_from_an_axis(body: Body) -> str:
    """The axes of the right operand are those of the left one from `axis` on, or the last ones."""
    node = body.node
    ranks = len(node.shape(0)), len(node.shape(1))
    axis = node.attr("axis", ranks[0] - ranks[1])
    behind = ranks[0] - ranks[1] - axis
    met = zip(node.shape(0)[axis:], node.shape(1), strict=False) if node.attr("broadcast", 0) else ()
    body.refuse(any(size not in (1, left) for left, size in met), "the operands do not fit")
    right = _with_ones_behind(body, 1, behind) if node.attr("broadcast", 0) else body.x(1)
    return body.op(node.op, body.x(0), right)


@expands("PRelu", domain="", below=_NUMPY)
def prelu_by_channel(body: Body) -> str:
    """One slope, or one for each channel."""
    one = body.node.shape(1) in ((), (1,))
    return body.op("PRelu", body.x(0), body.x(1) if one else _with_ones_behind(body, 1, len(body.node.shape(0)) - 2))


def _with_ones_behind(body: Body, index: int, count: int) -> str:
    shape = body.node.shape(index)
    body.refuse(count < 0, "the operands do not fit")
    return body.op("Reshape", body.x(index), body.const([*shape, *[1] * count])) if count else body.x(index)


@expands("Concat", domain="", below=_NAMED_AXIS)
def concat_of_channels(body: Body) -> str:
    """The axis is 1 where none is named."""
    return body.op("Concat", *body.node.proto.input, axis=body.node.attr("axis", 1))


@expands("Pad", domain="", below=_PADS)
def pad(body: Body) -> str:
    """Its pads are called otherwise, and its value is no operand."""
    pads, value = body.const(body.node.attr("paddings")), body.like(body.node.attr("value", 0.0))
    return body.op("Pad", body.x(0), pads, value, mode=body.node.attr("mode", "constant"))
