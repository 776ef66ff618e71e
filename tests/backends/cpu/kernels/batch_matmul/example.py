"""A product of two activations."""

from __future__ import annotations

from tvm import relax

from tests.backends.cpu.kernels.examples import Example


def batch_matmul(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return relax.op.matmul(x, b.emit(relax.op.permute_dims(x, [0, 2, 1])))


EXAMPLES = (Example(batch_matmul, (3, 21, 18)),)
