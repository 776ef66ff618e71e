"""A transposed convolution that doubles an image."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.examples import Example, NearMiss
from tests.passes.modules import weight


def transposed(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    taps = relax.const(normal((20, 40, 3, 3), 1) / np.float32(10))
    made = relax.op.nn.conv2d_transpose(x, taps, 2, 1, 1, data_layout="NHWC", kernel_layout="IOHW")
    return relax.op.nn.relu(made)


def planes(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return relax.op.nn.conv2d_transpose(x, weight(3, 4, 2, 2))


EXAMPLES = (Example(transposed, (1, 9, 7, 20)),)

NEAR_MISSES = (NearMiss(planes, (1, 3, 8, 8), "its images are stored NCHW, not NHWC"),)
