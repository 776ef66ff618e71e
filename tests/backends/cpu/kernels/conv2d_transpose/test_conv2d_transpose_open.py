"""Transposed convolutions over images of which only a call knows the sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.open_images import RUNS, OpenKernel, Size, check_sizes


@dataclass(frozen=True)
class Transposed:
    """A transposed convolution, as far as it says how large its result is."""

    kernel: int
    stride: int
    padding: int
    more: int = 0

    def output(self, height: int, width: int) -> tuple[int, int]:
        down, across = (
            (extent - 1) * self.stride - 2 * self.padding + self.kernel + self.more for extent in (height, width)
        )
        return down, across


def kernel_of(form: Transposed, depth: int, channels: int) -> OpenKernel:
    weight = relax.const(normal((depth, channels, form.kernel, form.kernel), 1) / np.float32(depth**0.5))

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        strides, padding, more = (form.stride,) * 2, (form.padding,) * 4, (form.more,) * 2
        conv = op.nn.conv2d_transpose(x, weight, strides, padding, more, data_layout="NHWC", kernel_layout="IOHW")
        return op.nn.relu(b.emit(conv))

    return OpenKernel(build, lambda n, h, w: [(n, h, w, depth)], form)


CASES = {
    "no tap over another": kernel_of(Transposed(2, 2, 0), 20, 40),
    "border": kernel_of(Transposed(4, 2, 1), 16, 16),
    "uneven": kernel_of(Transposed(3, 2, 1, 1), 16, 24),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("threads", "target", "sizes"), RUNS)
def test_kernels_are_right_at_all_sizes(case: str, threads: int, target: str, sizes: Sequence[Size]) -> None:
    check_sizes(CASES[case], "conv2d_transpose", threads, target, sizes)
