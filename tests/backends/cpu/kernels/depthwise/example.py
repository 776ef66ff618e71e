"""A depthwise convolution, and one in groups."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from tests.backends.cpu.kernels.examples import Example, NearMiss, computed, convolution


def by_computed_taps(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.nn.conv2d(x, b.emit(computed(3, 1, 3, 3)), groups=3, data_layout="NHWC")


EXAMPLES = (
    Example(convolution(40, 1, 40, 3), (1, 9, 10, 40)),
    Example(convolution(10, 4, 40, 3), (1, 9, 10, 40)),
)

NEAR_MISSES = (NearMiss(by_computed_taps, (1, 8, 8, 3), "its weights are no constant"),)
