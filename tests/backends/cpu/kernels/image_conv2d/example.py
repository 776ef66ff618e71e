"""The first layer of a network."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from tests.backends.cpu.kernels.examples import Example, NearMiss, computed, convolution


def by_computed_weights(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    image = b.emit(op.permute_dims(x, [0, 2, 3, 1]))
    return op.nn.conv2d(image, b.emit(computed(4, 3, 1, 1)), data_layout="NHWC")


EXAMPLES = (Example(convolution(1, 3, 20, 3, by_planes=True), (1, 3, 15, 18)),)

NEAR_MISSES = (NearMiss(by_computed_weights, (1, 3, 8, 8), "its weights are no constant"),)
