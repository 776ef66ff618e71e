"""The test for padding of a windowed sum was moved out of the lanes whose variables it used; TVM refused the kernel."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tests.backends.cpu.kernels.anchored import TARGETS, normal, run


def test_transposed_convolution_to_one_channel() -> None:
    data, weight = normal((5, 5, 8, 5), 0), normal((5, 1, 1, 1), 1)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.nn.conv2d_transpose(
            x, relax.const(weight), strides=(2, 1), data_layout="NHWC", kernel_layout="IOHW"
        )

    expected = np.zeros((5, 9, 8, 1))
    expected[:, ::2] = data.astype("float64") @ weight[:, :, 0, 0]
    for target in TARGETS:
        np.testing.assert_allclose(run(build, [data], target, 1).outputs[0], expected, atol=1e-5)
