"""A transposed convolution that doubles an image."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.examples import Example


def transposed(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    weight = relax.const(normal((20, 40, 3, 3), 1) / np.float32(10))
    made = relax.op.nn.conv2d_transpose(x, weight, 2, 1, 1, data_layout="NHWC", kernel_layout="IOHW")
    return relax.op.nn.relu(made)


EXAMPLES = (Example(transposed, (1, 9, 7, 20)),)
