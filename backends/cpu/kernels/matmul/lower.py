"""Lowers products of rows with a constant matrix."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from tvm import relax, te
from tvm.ir import GenericConst

from backends.cpu.kernels.shared.packing import pack_matmul, pack_matmul_pairs
from backends.tensorir.emit import Expr
from partition.access import ANCHOR, MATMUL

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def lower_matmul(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr | None:
    """Return `relax.matmul` with a constant matrix, of float32 operands, or of bfloat16 ones with a result in float32,
    as an anchor, the matrix packed; None where it is not one."""
    data, weight = call.args
    if not isinstance(weight, GenericConst) or len(weight.ty.shape) != 2:
        return None
    if factor_types(call) not in (["float32"] * 2, ["bfloat16"] * 2):
        return None
    return matmul_of(data, weight.value.numpy(), builder, lanes)


def factor_types(call: relax.Call) -> list[str]:
    """Return the dtypes of the operands of a product of matrices in float32; none where it has no elements or another
    result."""
    shapes = [tuple(int(extent) for extent in arg.ty.shape) for arg in call.args]
    result, *types = (str(part.ty.dtype.dtype) for part in (call, *call.args))
    if result != "float32" or any(len(shape) < 2 or 0 in shape for shape in shapes):
        return []
    return types


def matmul_of(data: relax.Expr, matrix: np.ndarray, builder: relax.BlockBuilder, lanes: int) -> relax.Expr:
    """Return rows of `data` (..., K) times the constant K x N `matrix`; a 1x1 convolution is one of these."""
    if matrix.dtype == BFLOAT16:
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
