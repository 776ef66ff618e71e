"""Attention of new tokens to those of earlier calls, whose keys and values are a cache that each call returns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.imported import TAKES_NOTHING
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.ops.rotary import angles, turn
from fusion.frontends.onnx.registry import converts
from fusion.guards.check import check
from fusion.guards.kinds import index_guard, keys_guard
from fusion.shapes import static_shape

_LOWEST = float(np.finfo("float32").min) / 2
"""What leaves out a score that it is added to."""


@dataclass(frozen=True)
class _Sizes:
    """Sizes: `tokens` are new, with `heads` queries each, of which those of each of `groups` share a key and a value of
    `depth` numbers; with them there are `total` tokens in the longest of the batch, and the cache had `past` places."""

    batch: int
    tokens: int
    heads: int
    groups: int
    depth: int
    past: int
    total: int

    @property
    def keys(self) -> int:
        """Places of the cache that is returned."""
        return max(self.past, self.total)

    @property
    def each(self) -> int:
        """Heads of a group."""
        return self.heads // self.groups

    @property
    def rows(self) -> int:
        """Rows of scores of a group: those of each head, token by token."""
        return self.each * self.tokens


@dataclass(frozen=True)
class _Places:
    """Where the tokens lie, int64 [B].

    Attributes:
        first: How many keys of earlier calls there are, behind which the new ones lie.
        end: How many there are with the new ones, or fewer: what is beyond is padding.
    """

    first: Expr
    end: Expr


@converts("GroupQueryAttention", domain="com.microsoft")
def group_query_attention(node: Node) -> list[Expr]:
    """Attention of [B, S, H * D], perhaps with its keys and values behind, to at most `local_window_size` keys each,
    and the cache [B, K, keys, D] of both.

    Of a batch with `L` keys the first `n = max(L - S, 0)` are those of earlier calls. Token `s` sees keys up to
    `n + s`, of which there are `L`; in the cache zeros are behind `n + S`.
    """
    _decline_others(node)
    sizes = _sizes(node)
    query, key, value = _split(node, sizes)
    places = _places(node, sizes)
    if node.attr("do_rotary", 0):
        query, key = _turned(node, sizes, places, (query, key))
    keys, values = (_cached(node, sizes, new, at, places) for new, at in ((key, 3), (value, 4)))
    return [_attend(node, sizes, query, (keys, values), _mask(node, sizes, places)), keys, values]


def _decline_others(node: Node) -> None:
    reasons = {
        "keys and values are quantized": any(node.attr(f"{side}_quant_type", "NONE") != "NONE" for side in "kv"),
        "queries and keys are normalized": node.has(14) or node.has(15),
        "the cache holds the last keys alone": node.attr("sliding_window_cache", 0),
        "queries see later keys": not node.attr("causal", 1),
        "queries see no keys": not node.attr("local_window_size", -1),
        "scores are asked for": node.wants(3),
        "one of the caches is missing": node.has(3) != node.has(4),
        "the keys are those of earlier calls": node.has(1) and node.shape(1)[1] != node.shape(0)[1],
        f"it is of {node.dtype(0)}": node.dtype(0) not in ("float32", "float16", "bfloat16"),
        "there are no tokens": 0 in node.shape(0),
        "angles are missing": node.attr("do_rotary", 0) and not (node.has(7) and node.has(8)),
    }
    for reason, holds in reasons.items():
        if holds:
            raise Declined(reason)


def _sizes(node: Node) -> _Sizes:
    batch, tokens, width = node.shape(0)
    heads, groups = int(node.attr("num_heads")), int(node.attr("kv_num_heads"))
    past = node.shape(3)[2] if node.has(3) else 0
    depth = width // (heads if node.has(1) else heads + 2 * groups)
    if not node.is_const(6):
        raise Declined("the run alone knows how many keys there are: total_sequence_length follows from no shape")
    total = int(node.needed_const(6).reshape(-1)[0])
    if total < tokens or past < total != past + tokens:
        raise Declined(f"of {total} keys {tokens} are new, and the cache has {past} places")
    return _Sizes(batch=batch, tokens=tokens, heads=heads, groups=groups, depth=depth, past=past, total=total)


def _split(node: Node, sizes: _Sizes) -> list[Expr]:
    """Return queries, keys and values, [B, S, heads, D]."""
    heads = (sizes.heads, sizes.groups, sizes.groups)
    if node.has(1):
        parts = [node.x(index) for index in range(3)]
    else:
        ends = np.cumsum([count * sizes.depth for count in heads])
        whole = node.emit(relax.op.split(node.x(0), [int(end) for end in ends[:-1]], axis=2))
        parts = [node.emit(relax.TupleGetItem(whole, index)) for index in range(3)]
    lead = sizes.batch, sizes.tokens
    return [
        node.emit(relax.op.reshape(part, (*lead, count, sizes.depth))) for part, count in zip(parts, heads, strict=True)
    ]


def _places(node: Node, sizes: _Sizes) -> _Places:
    last = node.emit(check(node.builder, node.x(5), keys_guard(f"seqlens_k {node.proto.input[5]!r}", sizes.keys)))
    end = node.emit(relax.op.add(node.emit(relax.op.astype(last, "int64")), _number(1)))
    first = node.emit(relax.op.maximum(node.emit(relax.op.subtract(end, _number(sizes.tokens))), _number(0)))
    return _Places(first, end)


def _turned(node: Node, sizes: _Sizes, places: _Places, each: tuple[Expr, Expr]) -> list[Expr]:
    """Return queries and keys turned by the angles of their places, in float32. Of given places of a prompt ONNX
    Runtime reads the first alone. Others are the same in all layers, which share what is checked under the name of the
    table."""
    if node.has(9) and sizes.tokens != sizes.total:
        at = node.x(9)
    else:
        start = _first_given(node) if node.has(9) else node.emit(relax.op.reshape(places.first, (sizes.batch, 1)))
        at = relax.op.add(start, relax.const(np.arange(sizes.tokens), "int64"))
        if not node.has(9):
            at = _checked(node, node.emit(at), rows=node.shape(7)[0])
        at = relax.op.broadcast_to(node.emit(at), (sizes.batch, sizes.tokens))
    cos, sin = (angles(node, node.x(index), node.emit(at), heads_axis=2) for index in (7, 8))
    is_interleaved = bool(node.attr("rotary_interleaved", 0))
    return [turn(node, _wide(node, x), _wide(node, cos), _wide(node, sin), is_interleaved=is_interleaved) for x in each]


def _checked(node: Node, places: Expr, rows: int) -> Expr:
    """Return places that the run has checked, in bounds that no later pass has to ask for."""
    guard = index_guard(f"cos_cache {node.proto.input[7]!r}", [0], [rows], negative=False)
    inside = node.emit(check(node.builder, places, guard))
    return relax.op.minimum(node.emit(relax.op.maximum(inside, _number(0))), _number(rows - 1))


def _first_given(node: Node) -> Expr:
    flat = node.emit(relax.op.reshape(node.x(9), (1, -1)))
    return node.emit(relax.op.strided_slice(flat, [1], [0], [1]))


def _cached(node: Node, sizes: _Sizes, new: Expr, past: int, places: _Places) -> Expr:
    """Return keys or values of all tokens, [B, K, keys, D]: those of the cache up to the first new one, these, and
    zeros."""
    dtype, new = node.dtype(0), node.emit(relax.op.permute_dims(new, [0, 2, 1, 3]))
    rows = new if str(new.ty.dtype) == dtype else node.emit(relax.op.astype(new, dtype))
    if not node.has(past):
        return rows
    shape = sizes.batch, sizes.groups, sizes.keys, sizes.depth
    tokens = tirx.const(sizes.tokens, "int64")

    def grow(past: te.Tensor, rows: te.Tensor, first: te.Tensor) -> te.Tensor:
        def element(batch: tirx.Var, group: tirx.Var, key: tirx.Var, at: tirx.Var) -> tirx.Expr:
            place = tirx.Cast("int64", key) - first(batch)
            zero = tirx.const(0, "int64")
            row = tirx.if_then_else(place < tokens, rows(batch, group, place, at), tirx.const(0, dtype))
            return tirx.if_then_else(place < zero, past(batch, group, key, at), row)

        return te.compute(shape, element, "grow")

    operands = node.x(past), rows, places.first
    return node.emit(
        node.builder.call_te(grow, *operands, primfunc_name_hint="grow", primfunc_attrs={TAKES_NOTHING: True})
    )


def _mask(node: Node, sizes: _Sizes, places: _Places) -> Expr:
    """Return what is added to the scores, as they lie: the bias of the keys that a token sees."""
    window = int(node.attr("local_window_size", -1))
    first, end = (node.emit(relax.op.reshape(each, (-1, 1, 1, 1))) for each in (places.first, places.end))
    keys = relax.const(np.arange(sizes.keys), "int64")
    behind = relax.const(np.arange(1, sizes.tokens + 1)[:, None], "int64")
    end = node.emit(relax.op.minimum(node.emit(relax.op.add(first, behind)), end))
    seen = node.emit(relax.op.less(keys, end))
    if window > 0:
        near = relax.op.greater_equal(keys, node.emit(relax.op.subtract(end, _number(window))))
        seen = node.emit(relax.op.logical_and(seen, node.emit(near)))
    bias: Expr = relax.const(0.0, "float32")
    if node.has(10):
        missing = sizes.keys - node.shape(10)[3]
        if missing < 0:
            raise Declined("the bias is of more keys than the cache has")
        bias = _wide(node, node.x(10))
        bias = node.emit(relax.op.nn.pad(bias, [0] * 7 + [missing])) if missing else bias
    mask = node.emit(relax.op.where(seen, bias, relax.const(_LOWEST, "float32")))
    batch, heads, *_ = static_shape(mask)
    if heads == 1:
        mask = node.emit(relax.op.broadcast_to(mask, (batch, sizes.each, sizes.tokens, sizes.keys)))
    return node.emit(relax.op.reshape(mask, (batch, max(1, heads // sizes.each), sizes.rows, sizes.keys)))


def _attend(node: Node, sizes: _Sizes, query: Expr, cache: tuple[Expr, Expr], mask: Expr) -> Expr:
    """Return [B, S, H * D]. The rows of all heads of a group are multiplied by its keys and values together."""
    keys, values = (_wide(node, each) for each in cache)
    split = sizes.batch, sizes.tokens, sizes.groups, sizes.each, sizes.depth
    query = node.emit(relax.op.reshape(_wide(node, query), split))
    query = node.emit(relax.op.permute_dims(query, [0, 2, 3, 1, 4]))
    query = node.emit(relax.op.reshape(query, (sizes.batch, sizes.groups, sizes.rows, sizes.depth)))
    turned = node.emit(relax.op.permute_dims(keys, [0, 1, 3, 2]))
    scores = _capped(node, sizes, node.emit(relax.op.matmul(query, turned)))
    y = node.emit(relax.op.matmul(_shares(node, sizes, node.emit(relax.op.add(scores, mask))), values))
    y = node.emit(relax.op.reshape(y, (sizes.batch, sizes.groups, sizes.each, sizes.tokens, sizes.depth)))
    y = node.emit(relax.op.permute_dims(y, [0, 3, 1, 2, 4]))
    flat = node.emit(relax.op.reshape(y, (sizes.batch, sizes.tokens, sizes.heads * sizes.depth)))
    return flat if node.dtype(0) == "float32" else node.emit(relax.op.astype(flat, node.dtype(0)))


def _capped(node: Node, sizes: _Sizes, scores: Expr) -> Expr:
    scale = node.attr("scale", 0.0) or 1 / math.sqrt(sizes.depth)
    cap = node.attr("softcap", 0.0)
    scaled = node.emit(relax.op.multiply(scores, relax.const(scale / cap if cap else scale, "float32")))
    bounded = node.emit(relax.op.tanh(scaled)) if cap else scaled
    return node.emit(relax.op.multiply(bounded, relax.const(cap, "float32"))) if cap else scaled


def _shares(node: Node, sizes: _Sizes, scores: Expr) -> Expr:
    """Return the softmax of the scores, of which a part may go to none of the keys: as one more score, that of the
    head or 0, says."""
    if not node.has(11) and node.attr("smooth_softmax", 0) != 1:
        return node.emit(relax.op.nn.softmax(scores, -1))
    sink = _wide(node, node.x(11)) if node.has(11) else relax.op.zeros((sizes.heads,), "float32")
    sink = node.emit(relax.op.reshape(node.emit(sink), (sizes.groups, sizes.each, 1)))
    sink = node.emit(relax.op.broadcast_to(sink, (sizes.batch, sizes.groups, sizes.each, sizes.tokens)))
    sink = node.emit(relax.op.reshape(sink, (sizes.batch, sizes.groups, sizes.rows, 1)))
    more = node.emit(relax.op.concat((scores, sink), -1))
    shares = node.emit(relax.op.nn.softmax(more, -1))
    return node.emit(relax.op.strided_slice(shares, [-1], [0], [sizes.keys]))


def _wide(node: Node, x: Expr) -> Expr:
    return x if str(x.ty.dtype) == "float32" else node.emit(relax.op.astype(x, "float32"))


def _number(value: int) -> Expr:
    return relax.const(value, "int64")
