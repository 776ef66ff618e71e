"""Rows times a constant matrix as an anchor, the matrix packed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from tvm import relax, te

from backends.cpu.kernels.shared.lowering.operands import BFLOAT16, BYTES, FLOAT32, JOINED
from backends.cpu.kernels.shared.lowering.packing import pack_matmul, pack_matmul_joined, packed_constant
from backends.tensorir.emit import Expr
from partition.access import ANCHOR, MATMUL


def matmul_of(data: relax.Expr, matrix: np.ndarray, builder: relax.BlockBuilder, lanes: int) -> relax.Expr:
    """Return rows of `data` (..., K) times the constant K x N `matrix`; a 1x1 convolution is one of these."""
    compute: Callable[..., te.Tensor]
    joined = JOINED.get(str(matrix.dtype))
    if joined is None:
        packed, compute = packed_constant(pack_matmul, matrix, lanes), _rows_by_weights
    else:
        packed = packed_constant(pack_matmul_joined, matrix, lanes, joined)
        sums = FLOAT32 if str(matrix.dtype) == BFLOAT16 else BYTES[2]
        compute = partial(_rows_by_joined, joined=joined, dtype=sums)
    return builder.call_te(compute, data, packed, matrix.shape[1], primfunc_name_hint=MATMUL)


def _rows_by_weights(data: te.Tensor, packed: te.Tensor, channels: int) -> te.Tensor:
    k = te.reduce_axis((0, data.shape[-1]), "k")
    lanes = int(packed.shape[-1])

    def sum_over_k(*at: Expr) -> Expr:
        *row, n = at
        return te.sum(data(*row, k) * packed[n // lanes, k, n % lanes], axis=k)

    return te.compute((*data.shape[:-1], channels), sum_over_k, name=MATMUL, attrs={ANCHOR: MATMUL})


def _rows_by_joined(data: te.Tensor, packed: te.Tensor, channels: int, joined: int, dtype: str) -> te.Tensor:
    k = te.reduce_axis((0, data.shape[-1]), "k")
    lanes = int(packed.shape[-1]) // joined

    def sum_over_k(*at: Expr) -> Expr:
        *row, n = at
        weight = packed[n // lanes, k // joined, n % lanes * joined + k % joined]
        return te.sum(data(*row, k).astype(dtype) * weight.astype(dtype), axis=k)

    return te.compute((*data.shape[:-1], channels), sum_over_k, name=MATMUL, attrs={ANCHOR: MATMUL})
