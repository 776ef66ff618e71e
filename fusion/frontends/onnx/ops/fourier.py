"""Fourier transforms of constant length, as products with the matrix of the transform."""

from __future__ import annotations

from math import log2, prod

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.fourier_matrix import fourier_matrix
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import converts

_LARGEST_MATRIX = 1 << 22
"""Elements: a module keeps 16 MB of it."""

# Nanoseconds, two threads of an Emerald Rapids, transforms of 128 to 1024 of 1 and 64 rows: an element of the matrix
# that is read for one row, a multiplication of many rows, and of ONNX Runtime's algorithm a step of the n log2(n) of a
# row. It takes 3 to 5 times as many where n is no power of 2.
_READ, _MULTIPLIED, _STEP, _ODD = 0.05, 0.0115, 3.5, 3.0


@converts("DFT")
def dft(node: Node) -> Expr:
    """`x[..., n, ..., 1 or 2] -> y[..., m, ..., 2]` along one axis: rows of real and imaginary parts by turns, times
    one matrix. What the transform is longer than the axis is zeros, for which the matrix has no rows; what it is
    shorter is left out."""
    shape, rank = node.shape(0), len(node.shape(0))
    inverse, one_sided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    axis = _dft_axis(node) % rank
    if shape[-1] not in (1, 2) or axis == rank - 1:
        raise Declined(f"a transform along axis {axis} of {list(shape)}")
    if one_sided and (inverse or shape[-1] == 2):
        raise Declined("one side of complex numbers, or of what an inverse transform makes")
    _check(node)
    given = node.const(1)
    length = shape[axis] if given is None else int(given.reshape(-1)[0])
    read = min(length, shape[axis])
    bins = length // 2 + 1 if one_sided else length
    rows = [size for place, size in enumerate(shape[:-1]) if place != axis]
    _check_cost(length, 2 * bins * read * shape[-1], prod(rows))
    matrix = _matrix(length, bins, read, inverse=inverse)
    if shape[-1] == 1:
        matrix = matrix[0::2]
    x = node.x(0)
    if read < shape[axis]:
        x = relax.op.strided_slice(x, [axis], [0], [read])
    order = [*(place for place in range(rank - 1) if place != axis), axis, rank - 1]
    y = relax.op.reshape(_permuted(x, order), (*rows, len(matrix)))
    y = relax.op.matmul(y, relax.const(matrix))
    y = relax.op.reshape(y, (*rows, matrix.shape[1] // 2, 2))
    return _permuted(y, list(np.argsort(order)))


def _dft_axis(node: Node) -> int:
    if node.opset < 20:
        return int(node.attr("axis", 1))
    axis = node.const(2)
    return -2 if axis is None else int(axis.reshape(-1)[0])


@converts("STFT")
def stft(node: Node) -> Expr:
    """`x[batch, n, 1] -> y[batch, frames, m, 2]`: a convolution with the rows of the matrix times the window.

    Its channels are as many samples as frames are whole multiples of and apart: 80 for frames of 400 by steps of 160,
    which are 5 and 2 of them.
    """
    shape = node.shape(0)
    if len(shape) != 3 or shape[-1] != 1:
        raise Declined(f"frames of {list(shape)}")
    _check(node)
    step, window, given = int(node.needed_const(1).reshape(-1)[0]), node.const(2), node.const(3)
    if given is not None:
        length = int(given.reshape(-1)[0])
    elif window is not None:
        length = len(window)
    else:
        raise Declined("frames of no length")
    if step < 1 or length > shape[1] or (window is not None and len(window) != length):
        raise Declined(f"frames of {length} by steps of {step} of {shape[1]}, with another window")
    bins = length // 2 + 1 if node.attr("onesided", 1) else length
    frames = (shape[1] - length) // step + 1
    _check_cost(length, 2 * bins * length, shape[0] * frames)
    matrix = _matrix(length, bins, length, inverse=False)[0::2]
    if window is not None:
        matrix = (matrix * window[:, None]).astype("float32")
    channels = int(np.gcd(length, step))
    rows = shape[1] // channels
    x = relax.op.reshape(node.x(0), (shape[0], shape[1]))
    if rows * channels < shape[1]:
        x = relax.op.strided_slice(x, [1], [0], [rows * channels])
    x = _permuted(relax.op.reshape(x, (shape[0], rows, channels)), [0, 2, 1])
    weights = matrix.T.reshape(2 * bins, length // channels, channels).transpose(0, 2, 1)
    y = relax.op.nn.conv1d(x, relax.const(np.ascontiguousarray(weights)), strides=step // channels)
    return relax.op.reshape(_permuted(y, [0, 2, 1]), (shape[0], frames, bins, 2))


def _check(node: Node) -> None:
    if node.dtype(0) != "float32" or not all(node.shape(0)):
        raise Declined(f"a transform of {node.dtype(0)} {list(node.shape(0))}")


def _check_cost(length: int, elements: int, rows: int) -> None:
    """Decline a transform of `rows` by a matrix of so many elements where ONNX Runtime's algorithm takes less."""
    if elements > _LARGEST_MATRIX:
        raise Declined(f"a transform of {length}, whose matrix would be large")
    steps = rows * length * log2(2 * length) * (_STEP if length & (length - 1) == 0 else _STEP * _ODD)
    if elements * max(_READ, _MULTIPLIED * rows) > steps:
        raise Declined(f"a transform of {length} of {rows} rows, for which ONNX Runtime's algorithm is faster")


def _matrix(length: int, bins: int, read: int, *, inverse: bool) -> np.ndarray:
    """Return the matrix, float32 of [2 read, 2 bins], by which a row of `read` complex numbers, real and imaginary
    parts by turns, is multiplied for the first `bins` of its transform of `length`."""
    matrix = fourier_matrix(length, bins, read, inverse=inverse)
    return np.asarray(matrix.reshape(2 * read, 2 * bins), np.float32)


def _permuted(x: Expr, order: list[int]) -> Expr:
    return x if order == sorted(order) else relax.op.permute_dims(x, [int(place) for place in order])
