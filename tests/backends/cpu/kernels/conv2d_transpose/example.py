"""A transposed convolution that doubles an image."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.examples import Example, NearMiss, computed


def transposed(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    weight = relax.const(normal((20, 40, 3, 3), 1) / np.float32(10))
    made = relax.op.nn.conv2d_transpose(x, weight, 2, 1, 1, data_layout="NHWC", kernel_layout="IOHW")
    return relax.op.nn.relu(made)


def by_computed_weights(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    planes = b.emit(relax.op.permute_dims(x, [0, 3, 1, 2]))
    return relax.op.nn.conv2d_transpose(planes, b.emit(computed(3, 4, 2, 2)))


EXAMPLES = (Example(transposed, (1, 9, 7, 20)),)

NEAR_MISSES = (NearMiss(by_computed_weights, (1, 8, 8, 3), "its weights are no constant"),)
