"""Two products of the same rows."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.examples import Example, NearMiss


def matmul(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Normalised rows times two matrices, one a gate of the other."""
    ones = relax.const(np.ones(19, "float32"))
    rows = b.emit(op.nn.layer_norm(x, ones, ones, [-1]))
    gate, value = (b.emit(op.matmul(rows, relax.const(normal((19, 37), seed)))) for seed in (1, 2))
    return op.multiply(b.emit(op.sigmoid(gate)), value)


def halves(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.matmul(b.emit(op.astype(x, "float16")), relax.const(normal((3, 4), 0).astype("float16")))


EXAMPLES = (Example(matmul, (45, 19)),)

NEAR_MISSES = (NearMiss(halves, (5, 3), "it computes in float16"),)
