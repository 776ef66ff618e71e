"""Products with weights of few bits, as ONNX Runtime's own operators have them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.narrow_weights import narrow_product
from fusion.frontends.onnx.four_bits import BIAS, PRODUCT, ZEROS, sums_nothing, why_not_of_four_bits
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import converts

_BYTES_LEVEL = 4
"""The `accuracy_level` at which rows may be rounded to 8 bits, as ONNX Runtime rounds them."""
_BLOCKS = (16, 32, 64, 128, 256)


@converts(PRODUCT, domain="com.microsoft")
def matmul_nbits(node: Node) -> Expr:
    """A [..., K] times weights of 4 bits in blocks, B [N, blocks, block / 2], each block with a scale and perhaps a
    zero point; sums of nothing, where K is 0, are of weights of any bits."""
    dtype = node.dtype(0)
    depth, channels = (int(node.attr(name, 0)) for name in ("K", "N"))
    if dtype not in ("float32", "float16") or node.shape(0)[-1:] != (depth,) or channels < 0:
        raise Declined(f"a product of {dtype} {list(node.shape(0))} with weights [{depth}, {channels}]")
    if sums_nothing(node.proto):
        y = relax.op.zeros((*node.shape(0)[:-1], channels), "float32")
    else:
        y = _product(node, depth, channels)
    if node.has(BIAS):
        y = relax.op.add(node.emit(y), _wide(node, BIAS))
    return y if dtype == "float32" else relax.op.astype(node.emit(y), dtype)


def _product(node: Node, depth: int, channels: int) -> Expr:
    why, block = why_not_of_four_bits(node.proto), int(node.attr("block_size", 0))
    if why or block not in _BLOCKS or min(depth, channels) < 1:
        raise Declined(why or f"blocks of {block} of weights [{depth}, {channels}]")
    blocks = -(-depth // block)
    weights = _known(node, 1, (channels, blocks, block // 2))
    scales = _known(node, 2, (channels, blocks))
    zeros = _zeros(node, channels, blocks)
    rounds = node.attr("accuracy_level", 0) == _BYTES_LEVEL and (zeros is None or zeros.dtype == np.uint8)
    return narrow_product(node.builder, _wide(node, 0), weights, scales, zeros, digits=1 if rounds else 3)


def _wide(node: Node, index: int) -> Expr:
    """Return a floating-point operand in float32."""
    x = node.x(index)
    return x if node.dtype(index) == "float32" else node.emit(relax.op.astype(x, "float32"))


def _zeros(node: Node, channels: int, blocks: int) -> npt.NDArray[np.uint8] | npt.NDArray[np.float32] | None:
    """Return the zero points, [N, blocks]; two are in a byte of each column, the earlier one in its lower half, or they
    are numbers."""
    if not node.has(ZEROS):
        return None
    if node.dtype(ZEROS) != "uint8":
        return _known(node, ZEROS, (channels, blocks)).astype("float32")
    pairs = _known(node, ZEROS, (channels, -(-blocks // 2)))
    return np.stack([pairs & 15, pairs >> 4], -1).reshape(channels, -1)[:, :blocks]


def _known(node: Node, index: int, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return a constant operand in this shape; ONNX Runtime says what is wrong with one of another size."""
    value = node.needed_const(index)
    if value.size != math.prod(shape):
        raise Declined(f"input {index} has {value.size} elements in place of {math.prod(shape)}")
    return value.reshape(shape)
