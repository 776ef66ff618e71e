"""A depthwise convolution and the pointwise ones around it in one kernel, against float64 PyTorch over random geometry,
epilogues, vector widths and threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from backends.cpu.anchors.rolling_window_plan import decline_one_kernel, plan_rolling
from backends.cpu.anchors.rolling_window_stages import RollingSizes
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
class Chain:
    """Sizes of the convolutions; what is between and behind them as `Epilogue.steps`."""

    sizes: RollingSizes
    between: tuple[str, ...] = ("bias", "clip")
    behind: tuple[str, ...] = ("bias", "relu")
    projected: tuple[str, ...] = ("bias", "residual")
    seed: int = 0

    @property
    def epilogues(self) -> list[Epilogue]:
        """Return those of expansion, window and projection, of which the first or the last may be missing."""
        sizes = self.sizes
        image, result = (sizes.batch, sizes.height, sizes.width), (sizes.batch, sizes.rows, sizes.columns)
        found = [Epilogue(self.between, (*image, sizes.channels), self.seed)] if sizes.depth else []
        found.append(Epilogue(self.behind, (*result, sizes.channels), self.seed + 50))
        if sizes.projected:
            found.append(Epilogue(self.projected, (*result, sizes.projected), self.seed + 100))
        return found

    @property
    def weights(self) -> list[np.ndarray]:
        """Return those of each convolution, O x I x H x W."""
        sizes = self.sizes
        shapes = [(sizes.channels, sizes.depth, 1, 1)] if sizes.depth else []
        shapes.append((sizes.channels, 1, *sizes.window.kernel))
        if sizes.projected:
            shapes.append((sizes.projected, sizes.channels, 1, 1))
        scales = [np.float32(np.prod(shape[1:]) ** 0.5) for shape in shapes]
        return [normal(shape, self.seed + 1 + i) / scales[i] for i, shape in enumerate(shapes)]

    def arrays(self) -> list[np.ndarray]:
        """Return the image, and what the epilogues read."""
        sizes = self.sizes
        data = normal((sizes.batch, sizes.height, sizes.width, sizes.depth or sizes.channels), self.seed)
        return [data, *(array for epilogue in self.epilogues for array in epilogue.arrays())]

    def relax(self, b: relax.BlockBuilder, x: relax.Var, *extra: relax.Var) -> relax.Expr:
        window = self.sizes.window
        for place, (weight, epilogue) in enumerate(zip(self.weights, self.epilogues, strict=True)):
            many, taps = len(epilogue.arrays()), relax.const(weight)
            if place == bool(self.sizes.depth):
                made = op.nn.conv2d(
                    x, taps, window.strides, window.padding, window.dilation, len(weight), data_layout="NHWC"
                )
            else:
                made = op.nn.conv2d(x, taps, data_layout="NHWC")
            x, extra = epilogue.relax(b, made, extra[:many]), extra[many:]
            x = x if isinstance(x, relax.Tuple) else b.emit(x)
        return x

    def numpy(self) -> list[np.ndarray]:
        results, window = [self.arrays()[0].astype("float64")], self.sizes.window
        for place, (weight, epilogue) in enumerate(zip(self.weights, self.epilogues, strict=True)):
            (image,) = results
            if place == bool(self.sizes.depth):
                made = convolve(image, weight, window.strides, window.padding, window.dilation, len(weight))
            else:
                made = image @ weight[:, :, 0, 0].T.astype("float64")
            results = epilogue.numpy(made)
        return results

    def run(self, target: str = "llvm", many: int = 2) -> Ran:
        return run(self.relax, self.arrays(), target, many, judge=always)


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    batch, height, width = draw(images)
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    dilation, padding = draw(pairs), draw(paddings)
    strides = tuple(min(stride, (k - 1) * d + 1) for stride, k, d in zip(draw(pairs), kernel, dilation, strict=True))
    spans = [(k - 1) * d + 1 - a - b for k, d, a, b in zip(kernel, dilation, padding[:2], padding[2:], strict=True)]
    height, width = max(height, spans[0]), max(width, spans[1])
    window = Window(kernel, strides, padding, dilation)
    forms = st.tuples(extents, st.just(0)) | st.tuples(extents, extents) | st.tuples(st.just(0), extents)
    depth, projected = draw(forms)
    sizes = RollingSizes(batch, height, width, depth, draw(extents.filter(lambda n: n > 1)), window, projected)
    between, behind = (tuple(step for step in draw(epilogues()) if step not in ("fork", "regroup")) for _ in range(2))
    return Chain(sizes, between, behind if projected else draw(epilogues()), draw(epilogues()), draw(seeds))


@settings(EXAMPLES, max_examples=32)
@given(chains(), targets, threads)
def test_depthwise_and_the_pointwise_around_it(chain: Chain, target: str, many: int) -> None:
    ran = chain.run(target, many)
    check(ran, chain.numpy())
    assert ran.templates() == ["rolling_window"]


def _sizes(
    height: int, width: int, depth: int, channels: int, window: Window = WINDOW, projected: int = 0
) -> RollingSizes:
    return RollingSizes(1, height, width, depth, channels, window, projected)


SHAPES = {
    "one pixel": Chain(_sizes(1, 1, 8, 16)),
    "fewer channels than a vector": Chain(_sizes(9, 7, 3, 5)),
    "a narrow last block": Chain(_sizes(9, 11, 16, 72)),
    "many bands of rows": Chain(_sizes(61, 5, 4, 16)),
    "the last columns and rows under no window": Chain(_sizes(8, 8, 8, 24, STRIDED)),
    "padding wider than the image": Chain(_sizes(2, 2, 8, 24, Window((5, 5), (1, 1), (4, 4, 4, 4), (1, 1)))),
    "a product of its sigmoid": Chain(_sizes(12, 12, 8, 40), ("bias", "sigmoid"), ("bias", "sigmoid", "residual")),
    "an inverted residual": Chain(_sizes(13, 9, 6, 40, projected=6)),
    "a strided one of narrow blocks": Chain(_sizes(11, 8, 6, 72, STRIDED, 100)),
    "a window and its projection": Chain(_sizes(11, 9, 0, 40, projected=24)),
    "one channel projected": Chain(_sizes(7, 30, 0, 17, STRIDED, 1)),
    "zeros around an image that has none": Chain(_sizes(5, 5, 4, 16), ("scale", "sigmoid"), ()),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str, target: str) -> None:
    ran = SHAPES[name].run(target, 3)
    check(ran, SHAPES[name].numpy())
    assert ran.templates() == ["rolling_window"]


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
    assert ran.templates() == ["rolling_window"]


def test_all_products_are_counted() -> None:
    chain = Chain(_sizes(14, 14, 24, 48, projected=24))
    ((name, kernel),) = chain.run().kernels.items()
    info = kernel_info(name, kernel)
    products = 2 * 14 * 14 * 48 * (24 + 9 + 24)
    assert products < info.flops < 1.25 * products
    assert info.template == "rolling_window"


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        (_sizes(112, 112, 16, 96), ""),
        (_sizes(28, 28, 32, 192), ""),
        (_sizes(28, 28, 32, 192, Window((7, 7), (1, 1), (3, 3, 3, 3), (1, 1))), "49 taps"),
        (_sizes(28, 28, 32, 192, Window((5, 5), (1, 1), (2, 2, 2, 2), (1, 1))), "25 taps"),
        (_sizes(28, 28, 32, 192, Window((1, 1), (2, 2), (0, 0, 0, 0), (1, 1))), "skips rows"),
        (_sizes(0, 28, 32, 192), "empty"),
        (_sizes(56, 56, 24, 144, projected=24), ""),
        (_sizes(14, 14, 64, 384, projected=64), "cycles estimated in one kernel"),
        (_sizes(112, 112, 0, 32, projected=16), ""),
        (_sizes(28, 28, 0, 256, projected=256), "cycles estimated in one kernel"),
    ],
)
def test_the_judge_says_why_convolutions_stay_in_several_kernels(sizes: RollingSizes, reason: str) -> None:
    answer = decline_one_kernel(sizes, MACHINE, 2)
    assert reason in answer
    assert bool(reason) == bool(answer)


def test_rows_are_not_computed_again_where_channels_are_enough_for_all_threads() -> None:
    assert plan_rolling(_sizes(14, 14, 64, 384), MACHINE, 2).bands == 1


def test_bands_for_all_threads_where_channels_are_too_few() -> None:
    assert plan_rolling(_sizes(112, 112, 16, 32), MACHINE, 8).bands >= 4
