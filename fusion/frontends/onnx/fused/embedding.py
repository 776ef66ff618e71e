"""What transformers begin with: embeddings, their norm, and positions turned into angles."""

from __future__ import annotations

import numpy as np

from fusion.frontends.onnx.fused.body import Body, expands
from fusion.frontends.onnx.fused.norms import norm


@expands("EmbedLayerNormalization")
def embed_layer_norm(body: Body) -> list[str]:
    """norm(words[ids] + positions + segments[segment ids]), how many words a row of the mask lets through, and the
    sum"""
    ids, segments, words, positions, segment_table, scale, bias, mask, position_ids = (body.x(i) for i in range(9))
    length = body.node.shape(0)[1]
    total = body.op("Gather", words, ids)
    first = [body.const([start]) for start in (0, length, 0)]
    places = body.op("Gather", positions, position_ids) if position_ids else body.op("Slice", positions, *first)
    total = body.op("Add", total, places)
    if segments and segment_table:
        total = body.op("Add", total, body.op("Gather", segment_table, segments))
    y = norm(body, total, scale, bias, epsilon=float(body.node.attr("epsilon", 1e-12)))[0]
    return [y, _lengths(body, mask), total]


def _lengths(body: Body, mask: str) -> str:
    if not body.node.wants(1):
        return ""
    if not mask:
        return body.const(np.zeros(body.node.shape(0)[:1]), "int32")
    passed = body.op("Equal", mask, body.const(1, "int32"))
    return body.op("ReduceSum", body.cast(passed, "int32"), body.const([1]), keepdims=0)


@expands("RotaryEmbedding")
def rotary_embedding(body: Body) -> str:
    """ONNX's, with angles by position before the tables; a single position is that of the first element"""
    node = body.node
    body.refuse(node.attr("scale", 1.0) != 1 or node.attr("is_packed_batching", 0), "angles are scaled or packed")
    shape, head = node.shape(0), 2 * node.shape(2)[1]
    given = {name: node.attr(name, 0) for name in ("interleaved", "num_heads", "rotary_embedding_dim")}
    if len(shape) == 3 and not given["num_heads"]:
        given["num_heads"] = shape[-1] // head
    return body.op("RotaryEmbedding", body.x(0), body.x(2), body.x(3), _positions(body), **given)


def _positions(body: Body) -> str:
    shape = body.node.shape(0)
    batch, length = shape[0], shape[-2]
    if len(body.node.shape(1)) == 2:
        return body.x(1)
    counted = body.op("Add", body.x(1), body.const(np.arange(length)))
    return body.op("Expand", counted, body.const([batch, length]))
