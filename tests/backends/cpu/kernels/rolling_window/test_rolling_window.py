"""Windows and the convolutions around them in one kernel, against float64 PyTorch over random geometry, epilogues,
vector widths and threads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from backends.cpu.kernels.rolling_window.emit import emit_rolling_window
from backends.cpu.kernels.rolling_window.plan import plan_rolling, why_not_fused
from backends.cpu.kernels.rolling_window.read import read_rolling_window
from backends.cpu.kernels.shared.window import Window
from tests.backends.cpu.kernels.anchored import Epilogue, always, normal, run, with_targets
from tests.backends.cpu.kernels.chained import (
    HALVES,
    POINTWISE,
    STEM,
    STRIDED,
    WINDOW,
    Chain,
    Layer,
    check_reason,
    inner_epilogues,
    scaled,
    spans,
    windows,
)
from tests.backends.cpu.kernels.drawn import (
    EXAMPLES,
    MACHINE,
    epilogues,
    extents,
    images,
    seeds,
    targets,
    threads,
)

op = relax.op


@dataclass(frozen=True)
class Rolling(Chain):
    """An image of `depth` channels, whose `channels` a convolution over `made` makes; 0 where it is under the window as
    it is. What is between and behind as `Epilogue.steps`.

    Attributes:
        pools: Whether the window is that of a maximum.
    """

    batch: int
    height: int
    width: int
    depth: int
    channels: int
    window: Window = WINDOW
    projected: int = 0
    made: Window = POINTWISE
    pools: bool = False
    by_planes: bool = False
    between: tuple[str, ...] = ("bias", "clip")
    behind: tuple[str, ...] = ("bias", "relu")
    last: tuple[str, ...] = ("bias", "residual")
    seed: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.batch, self.height, self.width, self.depth or self.channels

    @property
    def layers(self) -> list[Layer]:
        size = self.made.output(self.height, self.width) if self.depth else (self.height, self.width)
        image, result = (self.batch, *size), (self.batch, *self.window.output(*size))
        found = []
        if self.depth:
            epilogue = Epilogue(self.between, (*image, self.channels), self.seed)
            found.append(Layer(self.made, self._weights(self.channels, self.depth, *self.made.kernel), epilogue))
        taps = None if self.pools else self._weights(self.channels, 1, *self.window.kernel)
        epilogue = Epilogue(self.behind, (*result, self.channels), self.seed + 50)
        found.append(Layer(self.window, taps, epilogue, self.channels))
        if self.projected:
            epilogue = Epilogue(self.last, (*result, self.projected), self.seed + 100)
            found.append(Layer(POINTWISE, self._weights(self.projected, self.channels, 1, 1), epilogue))
        return found

    def _weights(self, *shape: int) -> np.ndarray:
        return scaled(shape, self.seed + shape[0])


@st.composite
def chains(draw: st.DrawFn) -> Rolling:
    batch, height, width = draw(images)
    pools = draw(st.booleans())
    window = draw(windows())
    made = draw(st.just(POINTWISE) | windows())
    forms = st.tuples(extents, st.just(0)) | st.tuples(extents, extents)
    depth, projected = draw(forms if pools else forms | st.tuples(st.just(0), extents))
    for each in (window, made):
        rows, columns = spans(each)
        height, width = height + rows * made.strides[0], width + columns * made.strides[1]
    between, behind = draw(inner_epilogues), draw(inner_epilogues)
    by_planes = made is not POINTWISE and 0 < depth < 8 and draw(st.booleans())
    return Rolling(
        batch, height, width, depth, draw(extents.filter(lambda n: n > 1)), window, projected, made, pools, by_planes,
        between, behind if projected else draw(epilogues()), draw(epilogues()), draw(seeds),
    )  # fmt: skip


@settings(EXAMPLES, max_examples=24)
@given(chains(), targets, threads)
def test_windows_between_convolutions(chain: Rolling, target: str, many: int) -> None:
    chain.check("rolling_window", target, many)


SHAPES = {
    "one pixel": Rolling(1, 1, 1, 8, 16),
    "fewer channels than a vector": Rolling(1, 9, 7, 3, 5),
    "a narrow last block": Rolling(1, 9, 11, 16, 72),
    "many bands of rows": Rolling(1, 61, 5, 4, 16),
    "the last columns and rows under no window": Rolling(1, 8, 8, 8, 24, STRIDED),
    "padding wider than the image": Rolling(1, 2, 2, 8, 24, Window((5, 5), (1, 1), (4, 4, 4, 4), (1, 1))),
    "a product of its sigmoid": Rolling(
        1, 12, 12, 8, 40, between=("bias", "sigmoid"), behind=("bias", "sigmoid", "residual")
    ),
    "an inverted residual": Rolling(1, 13, 9, 6, 40, projected=6),
    "a strided one of narrow blocks": Rolling(1, 11, 8, 6, 72, STRIDED, 100),
    "a window and its projection": Rolling(1, 11, 9, 0, 40, projected=24),
    "more columns than weights in registers": Rolling(1, 3, 20, 8, 16, Window((1, 15), (1, 1), (0, 7, 0, 7), (1, 1))),
    "one channel projected": Rolling(1, 7, 30, 0, 17, STRIDED, 1),
    "zeros around an image that has none": Rolling(1, 5, 5, 4, 16, between=("scale", "sigmoid"), behind=()),
    "the first layers of a ResNet": Rolling(2, 31, 30, 3, 40, STRIDED, made=STEM, pools=True, by_planes=True),
    "a convolution and a pool": Rolling(1, 13, 14, 20, 33, HALVES, made=WINDOW, pools=True),
    "a pool that sees only what is negative": Rolling(1, 9, 9, 8, 16, WINDOW, pools=True, between=("sigmoid", "scale")),
    "a first layer before a depthwise one": Rolling(1, 20, 17, 3, 24, made=STEM, by_planes=True, projected=12),
}


@pytest.mark.parametrize(("name", "target"), with_targets(SHAPES))
def test_shapes(name: str, target: str) -> None:
    SHAPES[name].check("rolling_window", target, 3)


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


def test_a_wide_window_has_no_more_weights_in_registers_than_its_plan_counts() -> None:
    """All 15 of a row stood before the first pixel, in 16 registers."""
    func = SHAPES["more columns than weights in registers"].asked()
    stages, machine = read_rolling_window(func), replace(MACHINE, vector_lanes=8, vector_registers=16)
    text = str(emit_rolling_window(func, stages, machine, plan_rolling(stages.sizes, machine, 1)).func)
    assert text.index("w0_6") < text.index("p0_0_0") < text.index("w0_7")


def test_all_products_are_counted() -> None:
    chain = Rolling(1, 14, 14, 24, 48, projected=24)
    chain.check_products("rolling_window", 2 * 14 * 14 * 48 * (24 + 9 + 24))


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        (Rolling(1, 112, 112, 16, 96), ""),
        (Rolling(1, 28, 28, 32, 192), ""),
        (Rolling(1, 28, 28, 32, 192, Window((7, 7), (1, 1), (3, 3, 3, 3), (1, 1))), "49 taps"),
        (Rolling(1, 28, 28, 32, 192, Window((5, 5), (1, 1), (2, 2, 2, 2), (1, 1))), "25 taps"),
        (Rolling(1, 28, 28, 32, 192, Window((1, 1), (2, 2), (0, 0, 0, 0), (1, 1))), "skips rows"),
        (Rolling(1, 56, 56, 24, 144, projected=24), ""),
        (Rolling(1, 14, 14, 64, 384, projected=64), "cycles estimated in one kernel"),
        (Rolling(1, 112, 112, 0, 32, projected=16), ""),
        (Rolling(1, 28, 28, 0, 256, projected=256), "cycles estimated in one kernel"),
        (Rolling(1, 224, 224, 3, 64, STRIDED, made=STEM, pools=True, by_planes=True), ""),
        (Rolling(1, 56, 56, 64, 64, HALVES, made=WINDOW, pools=True), "cycles estimated in one kernel"),  # Winograd
    ],
)
def test_the_judge_says_why_parts_stay_in_several_kernels(chain: Rolling, reason: str) -> None:
    check_reason(why_not_fused(read_rolling_window(chain.asked()), MACHINE, 2), reason)


def test_rows_are_not_computed_again_where_channels_are_enough_for_all_threads() -> None:
    assert plan_rolling(read_rolling_window(Rolling(1, 14, 14, 64, 384).asked()).sizes, MACHINE, 2).bands == 1


def test_bands_for_all_threads_where_channels_are_too_few() -> None:
    assert plan_rolling(read_rolling_window(Rolling(1, 112, 112, 16, 32).asked()).sizes, MACHINE, 8).bands >= 4
