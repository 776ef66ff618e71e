"""Lowers products of batches of two activations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax, te, tirx

from backends.cpu import bfloat16
from backends.cpu.kernels.shared.lowering.operands import BFLOAT16, check_matrices
from backends.tensorir.emit import Expr
from fusion.declined import Declined
from partition.access import ANCHOR, BATCH_MATMUL


def lower_batch_matmul(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr:
    """Return `relax.matmul` of float32 operands, or of bfloat16 ones with a result in float32, as an anchor.

    Raises:
        Declined: It is another product.
    """
    check_matrices(call)
    left, right = call.args
    if str(right.ty.dtype.dtype) == BFLOAT16 and not bfloat16.fills_vectors([int(n) for n in right.ty.shape]):
        raise Declined(f"rows of {int(right.ty.shape[-1])} numbers in bfloat16 do not fill vectors")
    return builder.call_te(_batches, left, right, primfunc_name_hint=BATCH_MATMUL)


def _batches(left: te.Tensor, right: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, left.shape[-1]), "k")
    batch = _broadcast([int(n) for n in left.shape[:-2]], [int(n) for n in right.shape[:-2]])

    def sum_over_k(*at: Expr) -> Expr:
        *which, m, n = at
        factors = left(*_of(left, which), m, k), right(*_of(right, which), k, n)
        row, weight = factors if left.dtype == "float32" else (factor.astype("float32") for factor in factors)
        return te.sum(row * weight, axis=k)

    shape = (*batch, left.shape[-2], right.shape[-1])
    return te.compute(shape, sum_over_k, name=BATCH_MATMUL, attrs={ANCHOR: BATCH_MATMUL})


def _of(tensor: te.Tensor, batch: Sequence[Expr]) -> list[Expr]:
    """Return the batch indices that a broadcast operand is read at."""
    extents = [int(extent) for extent in tensor.shape[:-2]]
    return broadcast_indices(extents, batch)


def broadcast_indices(extents: Sequence[int], at: Sequence[Expr]) -> list[Expr]:
    """Return the indices of an operand of shape `extents` at the place `at` of the broadcast shape."""
    own = list(at)[len(at) - len(extents) :]
    return [index if extent != 1 else tirx.const(0, index.ty) for extent, index in zip(extents, own, strict=True)]


def _broadcast(left: list[int], right: list[int]) -> tuple[int, ...]:
    return tuple(int(n) for n in np.broadcast_shapes(tuple(left), tuple(right)))
