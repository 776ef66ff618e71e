"""Windows over lines of which only a call knows the lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from tvm import relax
from tvm.relax import op

from backends.cpu.kernels.shared.window import Window
from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.open_images import RUNS, OpenKernel, Size, check_sizes

CHANNELS = 3


@dataclass(frozen=True)
class OpenLines(OpenKernel):
    """A kernel of images of one row, whatever the rows of a size."""

    def sizes(self, size: Size) -> dict[str, int]:
        images, _, columns = size
        return {"b": images, "w": columns, "q": self.window.output(1, columns)[1]}


def depthwise(window: Window) -> OpenLines:
    """Return a convolution of each line, with a costly function behind it."""
    weight, bias = relax.const(normal((CHANNELS, 1, *window.kernel), 1)), relax.const(normal((CHANNELS, 1, 1), 2))

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        conv = b.emit(op.nn.conv2d(x, weight, window.strides, window.padding, window.dilation, CHANNELS))
        return op.sigmoid(b.emit(op.add(conv, bias)))

    return OpenLines(build, lambda n, _, w: [(n, CHANNELS, 1, w)], window)


def pool(window: Window, averages: bool = False) -> OpenLines:
    """Return a pool: the maximum, or an average that counts the padding."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        sizes = (window.kernel, window.strides, window.padding, window.dilation)
        return op.nn.avg_pool2d(x, *sizes, count_include_pad=True) if averages else op.nn.max_pool2d(x, *sizes)

    return OpenLines(build, lambda n, _, w: [(n, CHANNELS, 1, w)], window)


CASES = {
    "padded": depthwise(Window((1, 3), (1, 1), (0, 1, 0, 1), (1, 1))),
    "causal": depthwise(Window((1, 4), (1, 1), (0, 3, 0, 0), (1, 1))),
    "strided": depthwise(Window((1, 5), (1, 2), (0, 2, 0, 2), (1, 1))),
    "dilated": depthwise(Window((1, 3), (1, 3), (0, 4, 0, 4), (1, 4))),
    "maximum": pool(Window((1, 3), (1, 2), (0, 1, 0, 1), (1, 1))),
    "pixels": pool(Window((1, 1), (1, 2), (0, 0, 0, 0), (1, 1))),
    "average": pool(Window((1, 2), (1, 1), (0, 1, 0, 1), (1, 1)), averages=True),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("threads", "target", "sizes"), RUNS)
def test_kernels_are_right_at_all_sizes(case: str, threads: int, target: str, sizes: Sequence[Size]) -> None:
    check_sizes(CASES[case], "planar_window", threads, target, [*sizes, (1, 1, 64), (2, 1, 143)])
