"""A softmax of squares."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from tests.backends.cpu.kernels.examples import Example


def softmax(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.nn.softmax(op.multiply(x, x), -1)


EXAMPLES = (Example(softmax, (37, 83)),)
