"""Convolutions in Winograd's form share a kernel, each with weights that were transformed for it."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tests.backends.cpu.kernels.anchored import check, convolve, normal, run


def test_calls_of_one_kernel_have_their_own_weights() -> None:
    x = normal((1, 24, 24, 32), 0)
    first, second = (normal((32, 32, 3, 3), seed) / np.float32(17) for seed in (1, 2))

    def build(builder: relax.BlockBuilder, value: relax.Var) -> relax.Expr:
        for weight in (first, second):
            conv = relax.op.nn.conv2d(value, relax.const(weight), padding=(1, 1), data_layout="NHWC")
            value = builder.emit(relax.op.nn.relu(builder.emit(conv)))
        return value

    ran = run(build, [x], "llvm", 2)
    assert ran.templates() == ["winograd"]
    expected = x.astype(np.float64)
    for weight in (first, second):
        expected = np.maximum(convolve(expected, weight, (1, 1), (1, 1, 1, 1), (1, 1), 1), 0)
    check(ran, [expected])
