"""Matrices of which only the elements or blocks that are not zero are stored, made dense: they are weights."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.relay.call import Call
from fusion.frontends.relay.layouts import relayout
from fusion.frontends.relay.registry import translates


@translates("nn.sparse_dense", "nn.internal.sparse_dense_padded")
def sparse_dense(call: Call) -> Expr:
    """x @ w', where operands 1 to 3 are the stored elements of w, or with `sparse_lhs` of x."""
    columns = call.shape(0)[-1]
    matrix = constant(_dense(call, 1, columns))
    if call.flag("sparse_lhs", False):
        return relax.op.matmul(matrix, relax.op.permute_dims(call.x(0)))
    return relax.op.matmul(call.x(0), relax.op.permute_dims(matrix))


@translates("nn.sparse_add")
def sparse_add(call: Call) -> Expr:
    return relax.op.add(call.x(0), constant(_dense(call, 1, call.shape(0)[-1])))


@translates("nn.sparse_conv2d")
def sparse_conv2d(call: Call) -> Expr:
    """A convolution with 1x1 windows: a product over the channels."""
    if set(call.ints("kernel_size", (1, 1))) != {1}:
        raise Declined("windows of more than one pixel")
    layout = call.text("layout", "NHWC")
    x = relayout(call, call.x(0), layout, "NHWC")
    weight = constant(_dense(call, 1, call.shape(0)[layout.index("C")]))
    return relayout(call, call.emit(relax.op.matmul(x, relax.op.permute_dims(weight))), "NHWC", layout)


@translates("nn.sparse_transpose")
def sparse_transpose(call: Call) -> list[Expr]:
    """The stored elements of a square matrix -> those of its transpose: data, column of each, start of each row."""
    rows = call.shape(2)[0] - 1
    data, columns, starts = (call.const(index) for index in range(3))
    order = np.lexsort((np.repeat(np.arange(rows), np.diff(starts)), columns))
    row = np.repeat(np.arange(rows), np.diff(starts))
    counts = np.bincount(columns, minlength=rows)
    begins = np.concatenate([[0], np.cumsum(counts)]).astype(starts.dtype)
    return [constant(data[order]), constant(row[order].astype(columns.dtype)), constant(begins)]


def _dense(call: Call, first: int, columns: int) -> np.ndarray:
    """Return the matrix of `columns` whose stored elements, their columns and the starts of rows are the operands from
    `first` on; elements may be blocks."""
    data, places, starts = (call.const(first + offset) for offset in range(3))
    blocks = data.reshape((-1, 1, 1)) if data.ndim == 1 else data
    if blocks.ndim != 3:
        raise Declined(f"stored elements of {data.ndim} axes")
    _, height, width = blocks.shape
    rows = len(starts) - 1
    dense = np.zeros((rows * height, columns), data.dtype)
    for row in range(rows):
        for index in range(int(starts[row]), int(starts[row + 1])):
            column = int(places[index]) * width
            dense[row * height : (row + 1) * height, column : column + width] += blocks[index]
    return dense
