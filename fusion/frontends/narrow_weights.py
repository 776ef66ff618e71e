"""Writes a product with weights of 4 bits as one anchor, whose weights stay as narrow as they are.

    y[*row, n] = sum over k of x[*row, k] * (w[n, k] - z[n, k / block]) * s[n, k / block]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx

from partition.access import ANCHOR, MATMUL_NBITS, NBITS_DIGITS, NBITS_MIDDLE

Array = npt.NDArray[Any]
Expr = Any  # a TensorIR expression


def narrow_product(
    builder: relax.BlockBuilder, x: relax.Expr, weights: Array, scales: Array, zeros: Array | None, *, digits: int
) -> relax.Expr:
    """Return `x` of float32 [..., K] times a matrix of K rows, in float32 [..., N].

    Args:
        weights: uint8 [N, blocks, block / 2]: two elements in each, the earlier one in its lower half. The last block
            may reach beyond K.
        scales: float32 or float16 [N, blocks].
        zeros: uint8 or float32 [N, blocks]; None where all are 8.
        digits: In how many bytes a number of `x` may be rounded: 1, or 3, which are as exact as float32.
    """
    operands = [weights, scales]
    if zeros is not None and (zeros != NBITS_MIDDLE).any():
        operands.append(zeros[..., None])
    constants = [relax.const(np.ascontiguousarray(operand)) for operand in operands]
    return builder.call_te(_product, x, *constants, digits=digits, primfunc_name_hint=MATMUL_NBITS)


def _product(x: te.Tensor, weights: te.Tensor, scales: te.Tensor, *zeros: te.Tensor, digits: int) -> te.Tensor:
    block = 2 * int(weights.shape[2])
    k = te.reduce_axis((0, x.shape[-1]), "k")

    def sum_over_k(*at: Expr) -> Expr:
        *row, n = at
        in_block = k // block
        pair = weights[n, in_block, k % block // 2]
        value = tirx.bitwise_and(tirx.shift_right(pair, (k % 2 * 4).astype("uint8")), tirx.const(15, "uint8"))
        zero = zeros[0][n, in_block, 0].astype("float32") if zeros else tirx.const(NBITS_MIDDLE, "float32")
        weight = (value.astype("float32") - zero) * scales[n, in_block].astype("float32")
        return te.sum(x(*row, k) * weight, axis=k)

    attrs = {ANCHOR: MATMUL_NBITS, NBITS_DIGITS: digits}
    return te.compute((*x.shape[:-1], weights.shape[0]), sum_over_k, name=MATMUL_NBITS, attrs=attrs)
