"""A window of height 1 under padding of 2 lay wholly below the image, and one row was read there all the same."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tests.backends.cpu.kernels.anchored import TARGETS, convolve, normal, run


def test_rows_of_padding_alone_are_zero() -> None:
    data, weight = normal((1, 7, 3, 4), 0), normal((4, 1, 1, 2), 1)
    strides, padding = (2, 2), (2, 2, 2, 2)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.nn.conv2d(x, relax.const(weight), strides, padding, groups=4, data_layout="NHWC")

    for target in TARGETS:
        (got,) = run(build, [data], target, 1).outputs
        np.testing.assert_allclose(got, convolve(data, weight, strides, padding, (1, 1), 4), atol=1e-5)
        assert not got[:, [0, -1]].any()
