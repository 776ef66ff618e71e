"""A convolution of a convolution."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from tests.backends.cpu.kernels.examples import Example, convolution


def narrowed(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    image = op.nn.relu(convolution(1, 12, 20, 1)(b, x))
    return convolution(1, 20, 36, 3)(b, b.emit(image))


EXAMPLES = (Example(narrowed, (1, 13, 11, 12)),)
