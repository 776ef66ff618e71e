"""A convolution with a kernel of 3x3."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from tests.backends.cpu.kernels.examples import Example, NearMiss, convolution
from tests.passes.modules import weight


def other_order_of_weights(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.nn.conv2d(x, weight(1, 1, 3, 4), data_layout="NHWC", kernel_layout="HWIO")


def planes(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.nn.conv2d(x, weight(4, 3, 1, 1))


EXAMPLES = (Example(convolution(1, 20, 40, 3), (1, 13, 11, 20)),)

NEAR_MISSES = (
    NearMiss(other_order_of_weights, (1, 8, 8, 3), "its weights are stored HWIO, not OIHW"),
    NearMiss(planes, (1, 3, 8, 8), "its images are stored NCHW, not NHWC"),
)
