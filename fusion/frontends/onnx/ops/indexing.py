"""Reads and writes at positions that are data. That these lie inside is checked later, by `GuardOperands`, except where
ONNX Runtime takes fewer of them than Relax's operator."""

from __future__ import annotations

from math import prod

from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import converts
from fusion.guards.check import check
from fusion.guards.kinds import index_guard


@converts("Gather")
def gather(node: Node) -> Expr:
    return relax.op.take(node.x(0), node.x(1), node.axis())


@converts("GatherElements")
def gather_elements(node: Node) -> Expr:
    return relax.op.gather_elements(node.x(0), node.x(1), node.axis())


@converts("GatherND")
def gather_nd(node: Node) -> Expr:
    return relax.op.gather_nd(node.x(0), node.x(1), int(node.attr("batch_dims", 0)))


@converts("Scatter", "ScatterElements")
def scatter_elements(node: Node) -> Expr:
    return relax.op.scatter_elements(node.x(0), node.x(1), node.x(2), node.axis(), _reduction(node))


@converts("ScatterND")
def scatter_nd(node: Node) -> Expr:
    return relax.op.scatter_nd(node.x(0), node.x(1), node.x(2), _reduction(node))


def _reduction(node: Node) -> str:
    name = node.attr("reduction", "none")
    if name != "none" and node.dtype(0) == "bool":
        raise Declined(f"{name} of booleans")
    return "update" if name == "none" else str(name)


@converts("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(node: Node) -> Expr:
    """Entries of the last axis."""
    shape = node.shape(0)
    indices = node.emit(relax.op.reshape(node.x(1), (-1,)))
    inside = check(node.builder, indices, index_guard(node.where, [len(shape) - 1], shape, negative=False))
    return relax.op.reshape(relax.op.take(node.x(0), node.emit(inside), -1), node.out_shape())


@converts("MaxUnpool")
def max_unpool(node: Node) -> Expr:
    """Zeros with the elements of input 0 at positions in the whole result."""
    shape, dtype = node.out_shape(), node.dtype(0)
    size = prod(shape)
    places = node.emit(relax.op.reshape(node.x(1), (-1,)))
    inside = check(node.builder, places, index_guard(node.where, [0], [size], negative=False))
    zeros = node.emit(relax.op.zeros((size,), dtype))
    flat = node.emit(relax.op.reshape(node.x(0), (-1,)))
    return relax.op.reshape(relax.op.scatter_elements(zeros, node.emit(inside), flat, 0, "update"), shape)
