"""Blocks of pixels moved to the channels or the batch, and back."""

from __future__ import annotations

import math

from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call, shape_of
from fusion.frontends.relay.layouts import relayout
from fusion.frontends.relay.ops.padding import pad_with, pairs
from fusion.frontends.relay.registry import translates


@translates("nn.depth_to_space")
def depth_to_space(call: Call) -> Expr:
    """[n, c b b, h, w] -> [n, c, h b, w b]: the channels are blocks of c (DCR), or c of blocks (CDR)."""
    x, block, layout = _nchw(call)
    n, c, h, w = shape_of(x)
    if c % (block * block):
        raise Declined(f"{c} channels are no blocks of {block} times {block}")
    deep, mode = c // (block * block), call.text("mode", "DCR")
    split = (n, block, block, deep, h, w) if mode == "DCR" else (n, deep, block, block, h, w)
    order = [0, 3, 4, 1, 5, 2] if mode == "DCR" else [0, 1, 4, 2, 5, 3]
    moved = relax.op.permute_dims(relax.op.reshape(x, split), order)
    return relayout(call, call.emit(relax.op.reshape(moved, (n, deep, h * block, w * block))), "NCHW", layout)


@translates("nn.space_to_depth")
def space_to_depth(call: Call) -> Expr:
    """[n, c, h b, w b] -> [n, b b c, h, w]"""
    x, block, layout = _nchw(call)
    n, c, h, w = shape_of(x)
    if h % block or w % block:
        raise Declined(f"an image of {h} by {w} is not divided into blocks of {block}")
    split = relax.op.reshape(x, (n, c, h // block, block, w // block, block))
    moved = relax.op.permute_dims(split, [0, 3, 5, 1, 2, 4])
    deep = call.emit(relax.op.reshape(moved, (n, block * block * c, h // block, w // block)))
    return relayout(call, deep, "NCHW", layout)


def _nchw(call: Call) -> tuple[Expr, int, str]:
    block, layout = call.integer("block_size", 1), call.text("layout", "NCHW")
    if block < 1:
        raise Declined(f"a block of {block}")
    return relayout(call, call.x(0), layout, "NCHW"), block, layout


@translates("nn.space_to_batch_nd")
def space_to_batch_nd(call: Call) -> Expr:
    """[n, spatial..., rest...] -> [n blocks, spatial / block..., rest...], padded before."""
    block = call.ints("block_shape", (1, 1))
    rank, widths = call.rank(0), pairs(call, "paddings", len(block))
    around = [(0, 0), *widths, *[(0, 0)] * (rank - 1 - len(block))]
    x = call.emit(pad_with(call, call.x(0), around, call.number("pad_value", 0.0)))
    n, *rest = shape_of(x)
    split = [n]
    for size, part in zip(rest, block, strict=False):
        if size % part:
            raise Declined(f"{size} elements are not divided into blocks of {part}")
        split += [size // part, part]
    count, tail = len(block), rest[len(block) :]
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2), *range(2 * count + 1, 2 * count + 1 + len(tail))]
    moved = relax.op.permute_dims(relax.op.reshape(x, [*split, *tail]), order)
    sizes = [size // part for size, part in zip(rest, block, strict=False)]
    return relax.op.reshape(moved, [n * math.prod(block), *sizes, *tail])


@translates("nn.batch_to_space_nd")
def batch_to_space_nd(call: Call) -> Expr:
    """[n blocks, spatial..., rest...] -> [n, spatial * block..., rest...], cropped after."""
    block = call.ints("block_shape", (1, 1))
    crops, (n, *rest) = pairs(call, "crops", len(block)), call.shape(0)
    if n % math.prod(block):
        raise Declined(f"a batch of {n} is not divided into blocks of {block}")
    count, tail = len(block), rest[len(block) :]
    split = [*block, n // math.prod(block), *rest]
    order = [count]
    for axis in range(count):
        order += [count + 1 + axis, axis]
    moved = relax.op.permute_dims(relax.op.reshape(call.x(0), split), [*order, *range(2 * count + 1, len(split))])
    sizes = [size * part for size, part in zip(rest, block, strict=False)]
    whole = call.emit(relax.op.reshape(moved, [n // math.prod(block), *sizes, *tail]))
    return pad_with(call, whole, [(0, 0), *((-before, -after) for before, after in crops), *[(0, 0)] * len(tail)], 0.0)
