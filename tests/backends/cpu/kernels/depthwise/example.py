"""A depthwise convolution, and one in groups."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from tests.backends.cpu.kernels.examples import Example, NearMiss, convolution


def of_doubles(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    taps = relax.const(np.ones((3, 1, 3, 3)), "float64")
    return op.nn.conv2d(b.emit(op.astype(x, "float64")), taps, groups=3, data_layout="NHWC")


EXAMPLES = (
    Example(convolution(40, 1, 40, 3), (1, 9, 10, 40)),
    Example(convolution(10, 4, 40, 3), (1, 9, 10, 40)),
)

NEAR_MISSES = (NearMiss(of_doubles, (1, 8, 8, 3), "it computes in float64"),)
