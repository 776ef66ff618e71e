"""Rotary positions (Su et al., RoFormer, 2021): pairs of numbers of each head, turned by angles that grow with the
place of the token."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import converts
from fusion.shapes import static_shape


@converts("RotaryEmbedding")
def rotary_embedding(node: Node) -> Expr:
    """[B, H, S, D] or [B, S, H * D], the angles by place in tables or [B, S, R / 2]"""
    shape = node.shape(0)
    x, heads_axis = node.x(0), 1
    if len(shape) == 3:
        heads = int(node.attr("num_heads"))
        x, heads_axis = node.emit(relax.op.reshape(x, (*shape[:2], heads, shape[2] // heads))), 2
    places = node.x(3) if node.has(3) else None
    cos, sin = (angles(node, node.x(index), places, heads_axis) for index in (1, 2))
    turned = turn(node, x, cos, sin, is_interleaved=bool(node.attr("interleaved", 0)))
    return relax.op.reshape(turned, shape)


def angles(node: Node, table: Expr, places: Expr | None, heads_axis: int) -> Expr:
    """Return the rows of a table at `places`, all of them without, with an axis for the heads."""
    rows = table if places is None else node.emit(relax.op.take(table, places, 0))
    return node.emit(relax.op.expand_dims(rows, heads_axis))


def turn(node: Node, x: Expr, cos: Expr, sin: Expr, *, is_interleaved: bool) -> Expr:
    """Return `x` with the first 2 n numbers of each row turned.

    Args:
        x: [..., D], of the dtype of the others.
        cos, sin: [..., n], that broadcast to its rows.
        is_interleaved: Whether pairs are neighbours, or n apart.
    """
    width, half = static_shape(x)[-1], static_shape(cos)[-1]

    def columns(first: int, last: int) -> Expr:
        return node.emit(relax.op.strided_slice(x, [-1], [first], [last]))

    turned = x if width == 2 * half else columns(0, 2 * half)
    if is_interleaved:
        other = relax.op.take(turned, relax.const(np.arange(2 * half) ^ 1, "int64"), -1)
        signs = relax.const(np.tile([-1.0, 1.0], half).astype(str(x.ty.dtype)))
        cos, sin = (node.emit(relax.op.repeat(each, 2, -1)) for each in (cos, sin))
        sin = node.emit(relax.op.multiply(sin, signs))
    else:
        ends = node.emit(relax.op.negative(columns(half, 2 * half))), columns(0, half)
        other = relax.op.concat(ends, -1)
        cos, sin = (node.emit(relax.op.concat((each, each), -1)) for each in (cos, sin))
    ahead = node.emit(relax.op.multiply(turned, cos))
    turned = node.emit(relax.op.add(ahead, node.emit(relax.op.multiply(node.emit(other), sin))))
    return turned if width == 2 * half else node.emit(relax.op.concat((turned, columns(2 * half, width)), -1))
