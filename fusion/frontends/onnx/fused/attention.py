"""Attention of several heads: softmax(q @ kᵀ * scale + mask) @ v."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusion.errors import UnsupportedOperatorError
from fusion.frontends.onnx.fused.body import Body, expands


@dataclass(frozen=True)
class _Heads:
    """Sizes: q is [batch, queries, heads * width], k the same with `keys`, v with `keys` and another width perhaps."""

    batch: int
    heads: int
    queries: int
    keys: int

    def split(self, body: Body, x: str, length: int, width: int) -> str:
        """[B, L, H * D], `width` of them in a row -> [B, L, H, D]"""
        return body.op("Reshape", x, body.const([self.batch, length, self.heads, width // self.heads]))


@expands("Attention")
def attention(body: Body) -> list[str]:
    """Attention of x @ w + b, which is q, k and v side by side."""
    node = body.node
    if not node.has(2) and node.has(4):
        # Where no converter is found the node would go there.
        raise UnsupportedOperatorError(
            "no backend runs Attention without a bias that reads keys of earlier calls",
            where=node.where,
            why="ONNX Runtime ends the process",
            hint="add a bias of zeros",
        )
    body.refuse(any(node.has(index) for index in (4, 6)), "keys and values of earlier calls are read")
    body.refuse(node.attr("do_rotary", 0), "queries and keys are turned")
    batch, length, _ = node.shape(0)
    sizes = node.attr("qkv_hidden_sizes") or [node.shape(1)[1] // 3] * 3
    parts = body.const(sizes)
    weights = body.ops("Split", 3, body.x(1), parts, axis=1)
    products = [body.op("MatMul", body.x(0), weight) for weight in weights]
    if body.x(2):
        biases = body.ops("Split", 3, body.x(2), parts, axis=0)
        products = [body.op("Add", *pair) for pair in zip(products, biases, strict=True)]
    heads = _Heads(batch, int(node.attr("num_heads")), length, length)
    return [_attend(body, heads, products, sizes, _masks(body, heads, 3, 5)), ""]


@expands("MultiHeadAttention")
def multi_head_attention(body: Body) -> list[str]:
    """Attention of q, k and v, to which one bias is added, side by side."""
    node = body.node
    body.refuse(any(node.has(index) for index in (6, 7, 8, 9)), "keys and values of earlier calls are read")
    body.refuse(not (node.has(1) and node.has(2)), "queries, keys and values are packed into one tensor")
    body.refuse(any(len(node.shape(index)) != 3 for index in range(3)), "heads have an axis of their own")
    batch, queries, _ = node.shape(0)
    widths = [node.shape(index)[2] for index in range(3)]
    parts = [body.x(index) for index in range(3)]
    if body.x(3):
        biases = body.ops("Split", 3, body.x(3), body.const(widths), axis=0)
        parts = [body.op("Add", *pair) for pair in zip(parts, biases, strict=True)]
    heads = _Heads(batch, int(node.attr("num_heads")), queries, node.shape(1)[1])
    return [_attend(body, heads, parts, widths, _masks(body, heads, 4, 5))]


def _attend(body: Body, heads: _Heads, parts: list[str], widths: Sequence[int], masks: list[str]) -> str:
    """Return [B, queries, H * D]; `widths` are those of all heads of the queries, the keys and the values."""
    query = body.op("Transpose", heads.split(body, parts[0], heads.queries, widths[0]), perm=[0, 2, 1, 3])
    key = body.op("Transpose", heads.split(body, parts[1], heads.keys, widths[1]), perm=[0, 2, 3, 1])
    value = body.op("Transpose", heads.split(body, parts[2], heads.keys, widths[2]), perm=[0, 2, 1, 3])
    scale = body.node.attr("scale", 0.0) or 1 / math.sqrt(widths[0] // heads.heads)
    scores = body.op("Mul", body.op("MatMul", query, key), body.like(scale))
    for mask in masks:
        scores = body.op("Add", scores, mask)
    y = body.op("MatMul", body.op("Softmax", scores, axis=-1), value)
    joined = body.op("Transpose", y, perm=[0, 2, 1, 3])
    return body.op("Reshape", joined, body.const([heads.batch, heads.queries, widths[2]]))


def _masks(body: Body, heads: _Heads, mask: int, bias: int) -> list[str]:
    """Return what is added to the scores [B, H, queries, keys]: inputs `mask` and `bias`, and the causal mask."""
    node, found = body.node, []
    filler = float(node.attr("mask_filter_value", -10000.0))
    if node.attr("unidirectional", 0):
        # ONNX Runtime lines up the first or the last query with the keys, depending on the other masks.
        body.refuse(heads.keys != heads.queries, "queries that see no later keys are not as many as the keys")
        later = np.triu(np.ones((heads.queries, heads.keys), bool), 1)
        found.append(body.like(np.where(later, _lowest(node.dtype(0)), 0)))
    if node.has(mask):
        passed = _passed(body, heads, mask)
        found.append(body.op("Where", passed, body.like(0.0), body.like(filler)))
    return [*found, body.x(bias)] if node.has(bias) else found


def _lowest(dtype: str) -> float:
    return float(np.finfo("float16" if dtype == "float16" else "float32").min) / 2


def _passed(body: Body, heads: _Heads, mask: int) -> str:
    """Return as bools [B, 1 or H, 1 or queries, keys] which keys a query may look at."""
    shape = body.node.shape(mask)
    if shape == (heads.batch,):  # how many keys there are
        count = body.op("Reshape", body.x(mask), body.const([-1, 1, 1, 1]))
        return body.op("Less", body.const(np.arange(heads.keys), "int32"), count)
    axes = {(heads.batch, heads.keys): [1, 2], (heads.batch, heads.queries, heads.keys): [1]}.get(shape)
    body.refuse(axes is None, f"the mask is {list(shape)}")
    return body.op("Unsqueeze", body.cast(body.x(mask), "bool"), body.const(axes))
