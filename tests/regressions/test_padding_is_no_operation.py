"""The choice between image and padding counted as an operation: padded convolutions did 1.5 times what they do, and
reached 159% of the roofline."""

from __future__ import annotations

import pytest
from tvm import relax

from backends.tensorir.kernel_info import kernel_info
from tests.backends.cpu.kernels.anchored import normal, run
from tests.passes.modules import Build


def _convolution(groups: int) -> Build:
    weight = normal((32, 32 // groups, 3, 3), 1)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.nn.conv2d(x, relax.const(weight), padding=1, groups=groups, data_layout="NHWC")

    return build


@pytest.mark.parametrize("groups", [1, 32])
def test_a_padded_convolution_has_two_operations_a_tap(groups: int) -> None:
    ((name, kernel),) = run(_convolution(groups), [normal((1, 10, 12, 32), 0)], "llvm", 1).kernels.items()
    assert kernel_info(name, kernel).flops == 2 * 9 * 10 * 12 * 32 * 32 // groups
