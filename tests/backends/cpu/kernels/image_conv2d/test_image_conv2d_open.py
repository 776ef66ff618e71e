"""Convolutions of planes of which only a call knows the sizes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tvm import relax
from tvm.relax import op

from backends.cpu.kernels.shared.window import Window
from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.open_images import RUNS, OpenKernel, Size, check_sizes


def of_planes(window: Window, planes: int, channels: int) -> OpenKernel:
    weight = relax.const(normal((channels, planes, *window.kernel), 1))

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        image = b.emit(op.permute_dims(x, [0, 2, 3, 1]))
        conv = op.nn.conv2d(image, weight, window.strides, window.padding, window.dilation, data_layout="NHWC")
        return op.nn.relu(b.emit(conv))

    return OpenKernel(build, lambda n, h, w: [(n, planes, h, w)], window)


CASES = {
    "strided": of_planes(Window((3, 3), (2, 2), (1, 1, 1, 1), (1, 1)), 3, 40),
    "large": of_planes(Window((7, 7), (2, 2), (3, 3, 3, 3), (1, 1)), 3, 64),
    "inside": of_planes(Window((1, 1), (4, 4), (0, 0, 0, 0), (1, 1)), 4, 16),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("threads", "target", "sizes"), RUNS)
def test_kernels_are_right_at_all_sizes(case: str, threads: int, target: str, sizes: Sequence[Size]) -> None:
    check_sizes(CASES[case], "image_conv2d", threads, target, sizes)
