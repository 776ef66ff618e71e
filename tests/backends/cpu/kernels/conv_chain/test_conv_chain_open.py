"""Two convolutions over images of which only a call knows the sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from backends.cpu.kernels.shared.window import Window
from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.open_images import RUNS, OpenKernel, Size, check_sizes

SAME = Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
HALF = Window((3, 3), (2, 2), (1, 1, 1, 1), (1, 1))
POINT = Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))


def convolved(b: relax.BlockBuilder, x: relax.Expr, shape: tuple[int, int], window: Window) -> relax.Expr:
    """Return a convolution whose weights have `shape`, O x I, and a relu."""
    weight = relax.const(normal((*shape, *window.kernel), 1) / np.float32(3 * shape[1] ** 0.5))
    conv = op.nn.conv2d(x, weight, window.strides, window.padding, window.dilation, data_layout="NHWC")
    return b.emit(op.nn.relu(b.emit(conv)))


def of_planes(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    image = b.emit(op.permute_dims(x, [0, 2, 3, 1]))
    return convolved(b, convolved(b, image, (24, 3), SAME), (40, 24), HALF)


def narrowed(b: relax.BlockBuilder, x: relax.Var, residual: relax.Var) -> relax.Expr:
    return op.add(convolved(b, convolved(b, x, (20, 32), POINT), (48, 20), HALF), residual)


def pointwise(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return convolved(b, convolved(b, x, (32, 32), HALF), (20, 32), POINT)


CASES = {
    "planes": OpenKernel(of_planes, lambda n, h, w: [(n, 3, h, w)], HALF),
    "narrowed": OpenKernel(narrowed, lambda n, h, w: [(n, h, w, 32), (n, *HALF.output(h, w), 48)], HALF),
    "pointwise": OpenKernel(pointwise, lambda n, h, w: [(n, h, w, 32)], HALF),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("threads", "target", "sizes"), RUNS)
def test_kernels_are_right_at_all_sizes(case: str, threads: int, target: str, sizes: Sequence[Size]) -> None:
    check_sizes(CASES[case], "conv_chain", threads, target, sizes)
