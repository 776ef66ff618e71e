"""Reads and writes at positions that are data. That these lie inside is checked later, by `GuardOperands`, except where
ONNX Runtime takes fewer of them than Relax's operator."""

from __future__ import annotations

from math import prod

from tvm import relax, te, tirx
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import converts
from fusion.guards.check import check
from fusion.guards.kinds import index_guard, start_guard


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
    if node.is_const(1):
        indices = relax.const(node.needed_const(1).reshape(-1), node.dtype(1))
    else:
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


@converts("TensorScatter")
def tensor_scatter(node: Node) -> Expr:
    """Rows behind one another, from the place in each batch that input 2 says; a ring goes on at its start, and counts
    on."""
    axis, shape, count = node.axis(default=-2), node.shape(0), node.shape(1)
    size, new = shape[axis], count[axis]
    if axis == 0 or count != (*shape[:axis], new, *shape[axis + 1 :]) or new > size:
        raise Declined(f"rows {list(count)} are written along axis {axis} of {list(shape)}")
    is_ring = node.attr("mode", "linear") == "circular"
    starts = node.x(2) if node.has(2) else relax.op.zeros((shape[0],), "int64")
    if 0 not in shape:
        last = (1 << 63) - 1 if is_ring else size - new
        starts = check(node.builder, node.emit(starts), start_guard(node.where, last))

    def write(rows: te.Tensor, update: te.Tensor, starts: te.Tensor) -> te.Tensor:
        def element(*at: tirx.Var) -> tirx.Expr:
            place = tirx.Cast("int64", at[axis]) - tirx.Cast("int64", starts(at[0]))
            place = tirx.floormod(place, tirx.const(size, "int64")) if is_ring else place
            inside = tirx.all(place >= tirx.const(0, "int64"), place < tirx.const(new, "int64"))
            return tirx.if_then_else(inside, update(*at[:axis], place, *at[axis + 1 :]), rows(*at))

        return te.compute(rows.shape, element, "write_rows")

    return node.builder.call_te(write, node.x(0), node.x(1), node.emit(starts), primfunc_name_hint="write_rows")
