"""Lowers products of rows with a constant matrix."""

from __future__ import annotations

import numpy as np
from tvm import relax, te

from backends.cpu.kernels.shared.operands import (
    BFLOAT16,
    FLOAT32,
    check_dtypes,
    check_elements,
    constant_weights,
    is_constant,
)
from backends.cpu.kernels.shared.packing import pack_matmul, pack_matmul_pairs
from backends.tensorir.emit import Expr
from fusion.bindings import data_of, operand
from fusion.declined import Declined
from partition.access import ANCHOR, MATMUL


def lower_matmul(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr:
    """Return `relax.matmul` with a constant matrix, of float32 operands, or of bfloat16 ones with a result in float32,
    as an anchor, the matrix packed.

    Raises:
        Declined: It is another product.
    """
    check_matrices(call)
    return matmul_of(data_of(call), constant_weights(call), builder, lanes)


def has_weights(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> bool:
    """Return whether a product is one with a constant matrix."""
    weights = operand(call, "x2")
    return is_constant(weights) and len(weights.ty.shape) == 2


def check_matrices(call: relax.Call) -> None:
    """Check that a product is one of matrices that have elements, in float32."""
    check_dtypes(call, FLOAT32, BFLOAT16)
    if any(len(operand.ty.shape) < 2 for operand in call.args):
        raise Declined("an operand of it is a vector")
    check_elements(*call.args)


def matmul_of(data: relax.Expr, matrix: np.ndarray, builder: relax.BlockBuilder, lanes: int) -> relax.Expr:
    """Return rows of `data` (..., K) times the constant K x N `matrix`; a 1x1 convolution is one of these."""
    if str(matrix.dtype) == BFLOAT16:
        packed, compute = pack_matmul_pairs(matrix, lanes), _rows_by_pairs
    else:
        packed, compute = pack_matmul(matrix, lanes), _rows_by_weights
    return builder.call_te(compute, data, relax.const(packed), matrix.shape[1], primfunc_name_hint=MATMUL)


def _rows_by_weights(data: te.Tensor, packed: te.Tensor, channels: int) -> te.Tensor:
    k = te.reduce_axis((0, data.shape[-1]), "k")
    lanes = int(packed.shape[-1])

    def sum_over_k(*at: Expr) -> Expr:
        *row, n = at
        return te.sum(data(*row, k) * packed[n // lanes, k, n % lanes], axis=k)

    return te.compute((*data.shape[:-1], channels), sum_over_k, name=MATMUL, attrs={ANCHOR: MATMUL})


def _rows_by_pairs(data: te.Tensor, packed: te.Tensor, channels: int) -> te.Tensor:
    k = te.reduce_axis((0, data.shape[-1]), "k")
    lanes = int(packed.shape[-1]) // 2

    def sum_over_k(*at: Expr) -> Expr:
        *row, n = at
        weight = packed[n // lanes, k // 2, n % lanes * 2 + k % 2]
        return te.sum(data(*row, k).astype("float32") * weight.astype("float32"), axis=k)

    return te.compute((*data.shape[:-1], channels), sum_over_k, name=MATMUL, attrs={ANCHOR: MATMUL})
