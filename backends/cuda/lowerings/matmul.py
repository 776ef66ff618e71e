"""Matmuls as anchors, whose operands lie as they are."""

from __future__ import annotations

import numpy as np
from tvm import relax, te

from backends.cuda.lowerings.product import anchor, at_broadcast, rounded, sum_of_products
from backends.tensorir.emit import Expr
from fusion.declined import Declined
from partition.access import BATCH_MATMUL


def lower_matmul(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a matmul as an anchor.

    Raises:
        Declined: An operand is a vector.
    """
    left, right = call.args
    if any(len(operand.ty.shape) < 2 for operand in call.args):
        raise Declined("an operand of it is a vector")
    return builder.call_te(_sums_of_rows, left, right, str(call.ty.dtype.dtype), primfunc_name_hint="matmul")


def _sums_of_rows(left: te.Tensor, right: te.Tensor, dtype: str) -> te.Tensor:
    k = te.reduce_axis((0, left.shape[-1]), "k")
    batch = np.broadcast_shapes(*(tuple(int(n) for n in operand.shape[:-2]) for operand in (left, right)))

    def sum_over_k(*at: Expr) -> Expr:
        *which, m, n = at
        return sum_of_products(left(*_of(left, which), m, k), right(*_of(right, which), k, n), [k])

    return rounded(anchor((*batch, left.shape[-2], right.shape[-1]), sum_over_k, "matmul", BATCH_MATMUL), dtype)


def _of(operand: te.Tensor, batch: list[Expr]) -> list[Expr]:
    """Return the batch that a broadcast operand is read at."""
    return at_broadcast(operand.shape[:-2], batch)
