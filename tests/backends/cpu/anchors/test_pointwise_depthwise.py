"""A pointwise and a depthwise convolution in one kernel, against float64 PyTorch over random geometry, epilogues,
vector widths and threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from backends.cpu.anchors.pointwise_depthwise_plan import decline_one_kernel, plan_pair
from backends.cpu.anchors.pointwise_depthwise_stages import PairSizes
from backends.cpu.anchors.window import Window
from backends.cpu.kernel_info import kernel_info
from tests.backends.cpu.anchors.anchored import TARGETS, Epilogue, Ran, check, convolve, normal, run
from tests.backends.cpu.anchors.test_anchors import (
    EXAMPLES,
    MACHINE,
    epilogues,
    extents,
    images,
    paddings,
    pairs,
    seeds,
    targets,
    threads,
)
from tests.backends.cpu.anchors.test_attention import always

op = relax.op
WINDOW = Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
STRIDED = Window((3, 3), (2, 2), (0, 0, 0, 0), (1, 1))


@dataclass(frozen=True)
class Pair:
    """Sizes of the two convolutions; what is between and behind them as `Epilogue.steps`."""

    sizes: PairSizes
    between: tuple[str, ...] = ("bias", "clip")
    behind: tuple[str, ...] = ("bias", "relu")
    seed: int = 0

    @property
    def expanded(self) -> Epilogue:
        sizes = self.sizes
        return Epilogue(self.between, (sizes.batch, sizes.height, sizes.width, sizes.channels), self.seed)

    @property
    def convolved(self) -> Epilogue:
        sizes = self.sizes
        return Epilogue(self.behind, (sizes.batch, sizes.rows, sizes.columns, sizes.channels), self.seed + 50)

    @property
    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        sizes = self.sizes
        pointwise = normal((sizes.channels, sizes.depth, 1, 1), self.seed + 1) / np.float32(sizes.depth**0.5)
        return pointwise, normal((sizes.channels, 1, *sizes.window.kernel), self.seed + 2) / np.float32(3)

    def arrays(self) -> list[np.ndarray]:
        """Return the image, and what the epilogues read."""
        sizes = self.sizes
        data = normal((sizes.batch, sizes.height, sizes.width, sizes.depth), self.seed)
        return [data, *self.expanded.arrays(), *self.convolved.arrays()]

    def relax(self, b: relax.BlockBuilder, x: relax.Var, *extra: relax.Var) -> relax.Expr:
        many, window = len(self.expanded.arrays()), self.sizes.window
        pointwise, taps = (relax.const(weight) for weight in self.weights)
        image = self.expanded.relax(b, op.nn.conv2d(x, pointwise, data_layout="NHWC"), extra[:many])
        made = op.nn.conv2d(
            image, taps, window.strides, window.padding, window.dilation, self.sizes.channels, data_layout="NHWC"
        )
        return self.convolved.relax(b, made, extra[many:])

    def numpy(self) -> list[np.ndarray]:
        data, window = self.arrays()[0], self.sizes.window
        pointwise, taps = self.weights
        (image,) = self.expanded.numpy(data.astype("float64") @ pointwise[:, :, 0, 0].T.astype("float64"))
        made = convolve(image, taps, window.strides, window.padding, window.dilation, self.sizes.channels)
        return self.convolved.numpy(made)

    def run(self, target: str = "llvm", many: int = 2) -> Ran:
        return run(self.relax, self.arrays(), target, many, judge=always)


@st.composite
def pairs_of_convolutions(draw: st.DrawFn) -> Pair:
    batch, height, width = draw(images)
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    dilation, padding = draw(pairs), draw(paddings)
    strides = tuple(min(stride, (k - 1) * d + 1) for stride, k, d in zip(draw(pairs), kernel, dilation, strict=True))
    spans = [(k - 1) * d + 1 - a - b for k, d, a, b in zip(kernel, dilation, padding[:2], padding[2:], strict=True)]
    height, width = max(height, spans[0]), max(width, spans[1])
    window = Window(kernel, strides, padding, dilation)
    between = tuple(step for step in draw(epilogues()) if step not in ("fork", "regroup"))
    sizes = PairSizes(batch, height, width, draw(extents), draw(extents.filter(lambda n: n > 1)), window)
    return Pair(sizes, between, draw(epilogues()), draw(seeds))


@settings(EXAMPLES, max_examples=16)
@given(pairs_of_convolutions(), targets, threads)
def test_pointwise_and_depthwise(pair: Pair, target: str, many: int) -> None:
    ran = pair.run(target, many)
    check(ran, pair.numpy())
    assert ran.templates() == ["pointwise_depthwise"]


def _sizes(height: int, width: int, depth: int, channels: int, window: Window = WINDOW) -> PairSizes:
    return PairSizes(1, height, width, depth, channels, window)


SHAPES = {
    "one pixel": Pair(_sizes(1, 1, 8, 16)),
    "fewer channels than a vector": Pair(_sizes(9, 7, 3, 5)),
    "a narrow last block": Pair(_sizes(9, 11, 16, 72)),
    "many bands of rows": Pair(_sizes(61, 5, 4, 16)),
    "the last columns and rows under no window": Pair(_sizes(8, 8, 8, 24, STRIDED)),
    "padding wider than the image": Pair(_sizes(2, 2, 8, 24, Window((5, 5), (1, 1), (4, 4, 4, 4), (1, 1)))),
    "a product of its sigmoid": Pair(_sizes(12, 12, 8, 40), ("bias", "sigmoid"), ("bias", "sigmoid", "residual")),
    "zeros around an image that has none": Pair(_sizes(5, 5, 4, 16), ("scale", "sigmoid"), ()),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str, target: str) -> None:
    ran = SHAPES[name].run(target, 3)
    check(ran, SHAPES[name].numpy())
    assert ran.templates() == ["pointwise_depthwise"]


def test_a_constant_image_does_not_share_the_window_s_padding() -> None:
    """What the window sees outside of the image is 0, not what the epilogue makes of 0."""
    data = np.zeros((1, 4, 4, 8), "float32")
    ones = relax.const(np.ones((16, 1, 3, 3), "float32"))

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        image = b.emit(op.nn.conv2d(x, relax.const(normal((16, 8, 1, 1), 1)), data_layout="NHWC"))
        image = b.emit(op.add(image, relax.const(np.float32(1))))
        return op.nn.conv2d(image, ones, padding=1, groups=16, data_layout="NHWC")

    ran = run(build, [data], "llvm", 2, judge=always)
    np.testing.assert_array_equal(ran.outputs[0][0, :, :, 0], [[4, 6, 6, 4], [6, 9, 9, 6], [6, 9, 9, 6], [4, 6, 6, 4]])
    assert ran.templates() == ["pointwise_depthwise"]


def test_both_products_are_counted() -> None:
    pair = Pair(_sizes(14, 14, 24, 48))
    ((name, kernel),) = pair.run().kernels.items()
    info = kernel_info(name, kernel)
    products = 2 * 14 * 14 * 48 * (24 + 9)
    assert products < info.flops < 1.25 * products
    assert info.template == "pointwise_depthwise"


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        (_sizes(112, 112, 16, 96), ""),
        (_sizes(28, 28, 32, 192), ""),
        (_sizes(28, 28, 32, 192, Window((7, 7), (1, 1), (3, 3, 3, 3), (1, 1))), "49 taps"),
        (_sizes(28, 28, 32, 192, Window((5, 5), (1, 1), (2, 2, 2, 2), (1, 1))), "25 taps"),
        (_sizes(28, 28, 32, 192, Window((1, 1), (2, 2), (0, 0, 0, 0), (1, 1))), "skips rows"),
        (_sizes(0, 28, 32, 192), "empty"),
    ],
)
def test_the_judge_says_why_a_pair_stays_in_two_kernels(sizes: PairSizes, reason: str) -> None:
    answer = decline_one_kernel(sizes, MACHINE, 2)
    assert reason in answer
    assert bool(reason) == bool(answer)


def test_rows_are_not_computed_again_where_channels_are_enough_for_all_threads() -> None:
    assert plan_pair(_sizes(14, 14, 64, 384), MACHINE, 2).bands == 1


def test_bands_for_all_threads_where_channels_are_too_few() -> None:
    assert plan_pair(_sizes(112, 112, 16, 32), MACHINE, 8).bands >= 4
