"""Lowers products of rows with a constant matrix."""

from __future__ import annotations

from tvm import relax

from backends.cpu.kernels.shared.lowering.constant_matmul import matmul_of
from backends.cpu.kernels.shared.lowering.operands import check_matrices, constant_weights, is_constant
from fusion.bindings import data_of, operand


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
