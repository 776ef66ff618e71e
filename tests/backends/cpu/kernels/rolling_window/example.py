"""A depthwise convolution of a convolution, and the maxima under a window over one."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from tests.backends.cpu.kernels.examples import Example, NearMiss, convolution


def expanded(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    image = op.nn.relu(convolution(1, 12, 100, 1)(b, x))
    return convolution(100, 1, 100, 3)(b, b.emit(image))


def pooled(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    image = b.emit(convolution(1, 12, 32, 1)(b, x))
    return op.nn.max_pool2d(image, (3, 3), (2, 2), (1, 1, 1, 1), layout="NHWC")


def doubles(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.nn.max_pool2d(b.emit(op.astype(x, "float64")), (2, 2), layout="NHWC")


EXAMPLES = (Example(expanded, (1, 13, 11, 12)), Example(pooled, (1, 13, 11, 12)))

NEAR_MISSES = (NearMiss(doubles, (1, 8, 8, 3), "it computes in float64"),)
