"""Convolutions over images of which only a call knows the sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from backends.cpu.kernels.shared.window import Window
from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.open_images import RUNS, OpenKernel, Size, check_sizes
from tests.targets import AVX2


def convolution(window: Window, groups: int, depth: int, channels: int) -> OpenKernel:
    """Return a convolution with a residual behind it."""
    weight = relax.const(normal((channels, depth, *window.kernel), 1) / np.float32(3 * depth**0.5))
    bias = relax.const(normal((channels,), 2))

    def build(b: relax.BlockBuilder, x: relax.Var, residual: relax.Var) -> relax.Expr:
        conv = b.emit(
            op.nn.conv2d(x, weight, window.strides, window.padding, window.dilation, groups, data_layout="NHWC")
        )
        return op.add(b.emit(op.nn.relu(b.emit(op.add(conv, bias)))), residual)

    return OpenKernel(
        build, lambda n, h, w: [(n, h, w, groups * depth), (n, *window.output(h, w), channels)], window
    )


CASES = {
    "strided": convolution(Window((3, 3), (2, 2), (1, 1, 1, 1), (1, 1)), 1, 24, 40),
    "wide": convolution(Window((1, 7), (1, 1), (0, 3, 0, 3), (1, 1)), 1, 16, 70),
    "dilated": convolution(Window((3, 3), (1, 1), (2, 2, 2, 2), (2, 2)), 1, 5, 16),
    "small": convolution(Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1)), 1, 3, 16),
    "groups": convolution(Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1)), 2, 20, 72),
    "one side": convolution(Window((3, 2), (3, 2), (2, 1, 0, 0), (1, 1)), 1, 16, 16),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("threads", "target", "sizes"), RUNS)
def test_sums_over_taps(case: str, threads: int, target: str, sizes: Sequence[Size]) -> None:
    check_sizes(CASES[case], "conv2d", threads, target, sizes)


WINOGRAD = {
    "padded": convolution(Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1)), 1, 40, 72),
    "one side": convolution(Window((3, 3), (1, 1), (2, 0, 1, 3), (1, 1)), 1, 32, 48),
}


@pytest.mark.parametrize("case", WINOGRAD)
@pytest.mark.parametrize(("threads", "target", "sizes"), RUNS)
def test_winograd(case: str, threads: int, target: str, sizes: Sequence[Size]) -> None:
    check_sizes(WINOGRAD[case], "winograd", threads, target, sizes)


SMALL: tuple[Size, ...] = ((8, 1, 1), (8, 4, 4), (8, 5, 7), (27, 3, 5), (60, 1, 9))
"""Images of a tile to a few, of which a task takes those of several, and cuts some images in two."""


@pytest.mark.parametrize(("case", "threads"), [("padded", 1), ("one side", 3)])
def test_winograd_takes_tiles_of_several_small_images(case: str, threads: int) -> None:
    check_sizes(WINOGRAD[case], "winograd", threads, AVX2, SMALL)
