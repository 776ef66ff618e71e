"""Operators that only move or repeat elements."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import converts


@converts("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(node: Node) -> Expr:
    """Whatever told the new shape, inference has made it static by now."""
    return node.x(0) if node.shape(0) == node.out_shape() else relax.op.reshape(node.x(0), node.out_shape())


@converts("Transpose")
def transpose(node: Node) -> Expr:
    rank = len(node.shape(0))
    axes = list(node.attr("perm") or reversed(range(rank)))
    return node.x(0) if axes == list(range(rank)) else relax.op.permute_dims(node.x(0), axes)


@converts("Expand")
def expand(node: Node) -> Expr:
    return node.x(0) if node.shape(0) == node.out_shape() else relax.op.broadcast_to(node.x(0), node.out_shape())


@converts("Tile")
def tile(node: Node) -> Expr:
    if node.is_const(1):
        repeats = [int(count) for count in node.needed_const(1)]
    elif 0 in node.shape(0):
        raise Declined("the repeats are a run-time input")
    else:
        repeats = [want // have for have, want in zip(node.shape(0), node.out_shape(), strict=True)]
    return relax.op.tile(node.x(0), repeats)


@converts("Concat")
def concat(node: Node) -> Expr:
    axis = node.axis()
    parts = [index for index in range(len(node.proto.input)) if node.shape(index)[axis] != 0]
    if not parts:
        return node.x(0)
    return node.x(parts[0]) if len(parts) == 1 else relax.op.concat([node.x(index) for index in parts], axis)


_SPLIT_AT_ONCE = 32
"""Outputs of one kernel: LLVM's time grows with their square; 200 at once took a minute."""


@converts("Split")
def split(node: Node) -> list[Expr]:
    axis = node.axis()
    sizes = [node.out_shape(index)[axis] for index in range(len(node.proto.output))]
    if len(sizes) == 1:
        return [node.x(0)]
    if 0 in sizes:
        return _split_with_empty_parts(node, sizes, axis)
    if len(sizes) <= _SPLIT_AT_ONCE:
        return _split(node, node.x(0), sizes, axis)
    parts, end = [], 0
    for first in range(0, len(sizes), _SPLIT_AT_ONCE):
        some = sizes[first : first + _SPLIT_AT_ONCE]
        begin, end = end, end + sum(some)
        parts += _split(node, node.emit(relax.op.strided_slice(node.x(0), [axis], [begin], [end])), some, axis)
    return parts


def _split(node: Node, x: Expr, sizes: list[int], axis: int) -> list[Expr]:
    if len(sizes) == 1:
        return [x]
    parts = node.emit(relax.op.split(x, [int(at) for at in np.cumsum(sizes)[:-1]], axis))
    return [relax.TupleGetItem(parts, index) for index in range(len(sizes))]


def _split_with_empty_parts(node: Node, sizes: list[int], axis: int) -> list[Expr]:
    ends = [int(at) for at in np.cumsum(sizes)]
    empty = [size if at != axis else 0 for at, size in enumerate(node.shape(0))]
    return [
        relax.op.strided_slice(node.x(0), [axis], [end - size], [end]) if size else relax.op.zeros(empty, node.dtype(0))
        for end, size in zip(ends, sizes, strict=True)
    ]


@converts("DepthToSpace")
def depth_to_space(node: Node) -> Expr:
    """[N, C, H, W] -> [N, C / b², H b, W b]"""
    batch, channels, height, width = node.shape(0)
    block = int(node.attr("blocksize"))
    if node.attr("mode", "DCR") == "DCR":
        shape, axes = (batch, block, block, channels // block**2, height, width), [0, 3, 4, 1, 5, 2]
    else:
        shape, axes = (batch, channels // block**2, block, block, height, width), [0, 1, 4, 2, 5, 3]
    return relax.op.reshape(relax.op.permute_dims(relax.op.reshape(node.x(0), shape), axes), node.out_shape())


@converts("SpaceToDepth")
def space_to_depth(node: Node) -> Expr:
    """[N, C, H, W] -> [N, C b², H / b, W / b]"""
    batch, channels, height, width = node.shape(0)
    block = int(node.attr("blocksize"))
    shape = (batch, channels, height // block, block, width // block, block)
    axes = [0, 3, 5, 1, 2, 4] if node.attr("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    return relax.op.reshape(relax.op.permute_dims(relax.op.reshape(node.x(0), shape), axes), node.out_shape())


@converts("CenterCropPad")
def center_crop_pad(node: Node) -> Expr:
    """Cut or pad each axis around its center to the size of the output."""
    x = node.x(0)
    pads: list[int] = []
    for axis, (have, want) in enumerate(zip(node.shape(0), node.out_shape(), strict=True)):
        if have > want:
            start = (have - want) // 2
            x = node.emit(relax.op.strided_slice(x, [axis], [start], [start + want]))
        missing = max(want - have, 0)
        pads += [missing // 2, missing - missing // 2]
    return relax.op.nn.pad(x, pads) if any(pads) else x
