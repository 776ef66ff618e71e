"""Choices of elements, and tensors made from positions."""

from __future__ import annotations

import math

import numpy as np
from onnx import numpy_helper
from tvm import relax, tirx
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import converts
from fusion.frontends.onnx.types import known_dims


@converts("OneHot")
def one_hot(node: Node) -> Expr:
    """values[1] where the position along the new axis equals the index, values[0] elsewhere."""
    rank = len(node.out_shape())
    axis = node.axis(default=-1, rank=rank)
    depth = node.out_shape()[axis]
    indices = relax.op.expand_dims(relax.op.astype(node.x(0), "int64"), axis)
    wrapped = relax.op.where(
        relax.op.less(indices, relax.const(0, "int64")), relax.op.add(indices, relax.const(depth, "int64")), indices
    )
    positions = np.arange(depth, dtype="int64").reshape([depth if at == axis else 1 for at in range(rank)])
    off, on = (relax.op.strided_slice(node.x(2), [0], [at], [at + 1]) for at in (0, 1))
    return relax.op.where(relax.op.equal(wrapped, relax.const(positions, "int64")), on, off)


@converts("Range")
def range_(node: Node) -> Expr:
    """start + delta * (0, 1, ...), the length known from the output's shape."""
    count, dtype = node.out_shape()[0], node.out_dtype()
    if node.is_const(0) and node.is_const(2):  # it is computed for all sizes of what makes it so long
        steps = node.emit(relax.op.astype(node.emit(relax.op.arange(0, count, 1, "int64")), dtype))
    else:
        steps = relax.const(np.arange(count).astype(dtype), dtype)
    return relax.op.add(relax.op.multiply(steps, node.x(2)), node.x(0))


@converts("ConstantOfShape")
def constant_of_shape(node: Node) -> Expr:
    value = node.attr("value")
    fill = np.zeros(1, dtype="float32") if value is None else numpy_helper.to_array(value)
    if node.is_const(0):  # as above
        return relax.op.full(node.out_shape(), relax.const(fill.reshape(-1)[0], str(fill.dtype)), str(fill.dtype))
    return relax.const(np.full(node.out_shape(), fill.reshape(-1)[0], dtype=fill.dtype), str(fill.dtype))


@converts("EyeLike")
def eye_like(node: Node) -> Expr:
    rows, columns = node.shape(0)
    return relax.const(np.eye(rows, columns, int(node.attr("k", 0))).astype(node.out_dtype()), node.out_dtype())


@converts("Trilu")
def trilu(node: Node) -> Expr:
    """Keep the upper or lower triangle; `k` may be known only at run time."""
    shape = node.shape(0)
    rows, columns = shape[-2:]
    if 0 in shape:
        return node.x(0)
    # Distance of an element from the main diagonal, to the right.
    distance = relax.const(np.arange(columns)[None, :] - np.arange(rows)[:, None], "int64")
    k = node.x(1) if node.has(1) else relax.const(0, "int64")
    keep = relax.op.greater_equal(distance, k) if node.attr("upper", 1) else relax.op.less_equal(distance, k)
    return relax.op.where(relax.op.reshape(keep, (rows, columns)), node.x(0), node.like(0))


# Positions times results that Compress may compare.
_MAX_COMPRESS_PAIRS = 1 << 20


@converts("Compress")
def compress(node: Node) -> Expr:
    """The elements where the condition holds; of none, none, whatever it says.

    Where the output's declared shape says how many, the k-th of them lies behind as many positions as have seen at most
    k true values.
    """
    flat = node.attr("axis") is None
    if flat and 0 in node.shape(0):
        return relax.op.zeros((0,), node.dtype(0))
    x = relax.op.reshape(node.x(0), (math.prod(node.shape(0)),)) if flat else node.x(0)
    axis = 0 if flat else node.axis()
    size = math.prod(node.shape(0)) if flat else node.shape(0)[axis]
    # What a condition says beyond the axis counts for nothing; ONNX Runtime reads one of any rank as a row.
    given = math.prod(node.shape(1))
    row = node.x(1) if len(node.shape(1)) == 1 else node.emit(relax.op.reshape(node.x(1), (given,)))
    length = min(size, given)
    condition = node.emit(relax.op.strided_slice(row, [0], [0], [length]))
    if known_dims(node.outputs[0]) is None:
        counted = relax.TensorType((1, tirx.Var("count", "int64")), "int64")
        found = node.builder.match_cast(node.emit(relax.op.nonzero(condition)), counted)
        return relax.op.take(x, node.emit(relax.op.reshape(found, (-1,))), axis)
    count = node.out_shape()[axis]
    if count * length > _MAX_COMPRESS_PAIRS:
        raise Declined("too many elements to choose from")
    seen = relax.op.cumsum(relax.op.astype(condition, "int64"), 0, "int64")
    before = relax.op.less_equal(
        node.emit(relax.op.expand_dims(node.emit(seen), 0)), relax.const(np.arange(count)[:, None], "int64")
    )
    positions = relax.op.sum(node.emit(relax.op.astype(before, "int64")), [1])
    return relax.op.take(x, node.emit(positions), axis)


@converts("NonZero")
def non_zero(node: Node) -> Expr:
    """A scalar counts as a row of one element."""
    return relax.op.nonzero(node.x(0) if node.shape(0) else relax.op.reshape(node.x(0), (1,)))


@converts("ReverseSequence")
def reverse_sequence(node: Node) -> Expr:
    return relax.op.reverse_sequence(
        node.x(0), node.x(1), int(node.attr("time_axis", 0)), int(node.attr("batch_axis", 1))
    )


@converts("TopK")
def top_k(node: Node) -> list[Expr]:
    axis = node.axis(default=-1)
    if node.dtype(0) not in ("float32", "float64", "float16", "int64", "int32"):
        raise Declined(f"TopK of {node.dtype(0)}")
    count = node.out_shape()[axis]
    both = node.emit(relax.op.topk(node.x(0), count, axis, "both", bool(node.attr("largest", 1)), "int64"))
    return [relax.TupleGetItem(both, 0), relax.TupleGetItem(both, 1)]


@converts("Binarizer", domain="ai.onnx.ml")
def binarizer(node: Node) -> Expr:
    return relax.op.astype(relax.op.greater(node.x(0), node.like(node.attr("threshold", 0.0))), node.dtype(0))
