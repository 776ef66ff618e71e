"""Windows and the convolutions around them in one kernel, against float64 PyTorch over random geometry, epilogues,
vector widths and threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, tirx

from backends.cpu.anchors.rolling_window_plan import decline_one_kernel, plan_rolling
from backends.cpu.anchors.rolling_window_stages import read_rolling_window
from backends.cpu.anchors.window import Window
from backends.cpu.kernel_info import kernel_info
from tests.backends.cpu.anchors.anchored import (
    TARGETS,
    Epilogue,
    Ran,
    check,
    convolve,
    normal,
    one_kernel,
    run,
)
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
POINTWISE = Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
HALVES = Window((2, 2), (2, 2), (0, 0, 0, 0), (1, 1))
STEM = Window((7, 7), (2, 2), (3, 3, 3, 3), (1, 1))


@dataclass(frozen=True)
class Chain:
    """An image of `depth` channels, whose `channels` a convolution over `made` makes; 0 where it is under the window as
    it is. What is between and behind as `Epilogue.steps`.

    Attributes:
        pools: Whether the window is that of a maximum.
        by_planes: Whether the image lies N, C, H, W.
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
    def image(self) -> tuple[int, int]:
        """Height and width under the window."""
        return self.made.output(self.height, self.width) if self.depth else (self.height, self.width)

    @property
    def layers(self) -> list[tuple[str, tuple[int, ...], Epilogue]]:
        """Return kind, shape of the weights (O x I x H x W) and epilogue of each."""
        image, result = (self.batch, *self.image), (self.batch, *self.window.output(*self.image))
        found = []
        if self.depth:
            weights = (self.channels, self.depth, *self.made.kernel)
            found.append(("make", weights, Epilogue(self.between, (*image, self.channels), self.seed)))
        taps = (self.channels, 1, *self.window.kernel)
        found.append(("window", taps, Epilogue(self.behind, (*result, self.channels), self.seed + 50)))
        if self.projected:
            panels = (self.projected, self.channels, 1, 1)
            found.append(("project", panels, Epilogue(self.last, (*result, self.projected), self.seed + 100)))
        return found

    def arrays(self) -> list[np.ndarray]:
        """Return the image, and what the epilogues read."""
        data = normal((self.batch, self.height, self.width, self.depth or self.channels), self.seed)
        given = np.ascontiguousarray(data.transpose(0, 3, 1, 2)) if self.by_planes else data
        return [given, *(array for *_, epilogue in self.layers for array in epilogue.arrays())]

    def weights(self, shape: tuple[int, ...]) -> np.ndarray:
        return normal(shape, self.seed + shape[0]) / np.float32(np.prod(shape[1:]) ** 0.5)

    def relax(self, b: relax.BlockBuilder, x: relax.Var, *extra: relax.Var) -> relax.Expr:
        x = b.emit(op.permute_dims(x, [0, 2, 3, 1])) if self.by_planes else x
        for kind, shape, epilogue in self.layers:
            weight = relax.const(self.weights(shape))
            over = {"make": self.made, "window": self.window, "project": POINTWISE}[kind]
            at = over.strides, over.padding, over.dilation
            if kind == "window" and self.pools:
                value = op.nn.max_pool2d(x, over.kernel, *at, layout="NHWC")
            else:
                value = op.nn.conv2d(x, weight, *at, shape[0] if kind == "window" else 1, data_layout="NHWC")
            many = len(epilogue.arrays())
            x, extra = epilogue.relax(b, value, extra[:many]), extra[many:]
        return x

    def numpy(self) -> list[np.ndarray]:
        data = self.arrays()[0].astype("float64")
        results = [data.transpose(0, 2, 3, 1) if self.by_planes else data]
        for kind, shape, epilogue in self.layers:
            (image,) = results
            over = {"make": self.made, "window": self.window, "project": POINTWISE}[kind]
            if kind == "window" and self.pools:
                made = max_pool(image, over)
            else:
                at = over.strides, over.padding, over.dilation
                made = convolve(image, self.weights(shape), *at, shape[0] if kind == "window" else 1)
            results = epilogue.numpy(made)
        return results

    def run(self, target: str = "llvm", many: int = 2) -> Ran:
        return run(self.relax, self.arrays(), target, many, judge=always)

    def asked(self) -> tirx.PrimFunc:
        """Return the kernel that the judge is asked about."""
        return one_kernel(self.relax, self.arrays())


def max_pool(image: np.ndarray, window: Window) -> np.ndarray:
    top, left, bottom, right = window.padding
    padded = np.pad(image, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=-np.inf)
    rows, columns = window.output(*image.shape[1:3])
    (kh, kw), (sh, sw), (dh, dw) = window.kernel, window.strides, window.dilation
    taps = (
        padded[:, dh * i : dh * i + sh * rows : sh, dw * j : dw * j + sw * columns : sw][:, :rows, :columns]
        for i in range(kh) for j in range(kw)
    )  # fmt: skip
    return np.maximum.reduce(list(taps))


@st.composite
def windows(draw: st.DrawFn, pads: bool = True) -> Window:
    kernel, dilation = draw(st.tuples(st.integers(1, 5), st.integers(1, 5))), draw(pairs)
    strides = tuple(min(stride, (k - 1) * d + 1) for stride, k, d in zip(draw(pairs), kernel, dilation, strict=True))
    most = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)] * 2
    padding = tuple(min(pad, limit) for pad, limit in zip(draw(paddings), most, strict=True))
    return Window(kernel, strides, padding if pads else (0, 0, 0, 0), dilation)


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    batch, height, width = draw(images)
    pools = draw(st.booleans())
    window = draw(windows())
    made = draw(st.just(POINTWISE) | windows())
    forms = st.tuples(extents, st.just(0)) | st.tuples(extents, extents)
    depth, projected = draw(forms if pools else forms | st.tuples(st.just(0), extents))
    for each in (window, made):
        spans = [(k - 1) * d + 1 for k, d in zip(each.kernel, each.dilation, strict=True)]
        height, width = height + spans[0] * made.strides[0], width + spans[1] * made.strides[1]
    between, behind = (tuple(step for step in draw(epilogues()) if step not in ("fork", "regroup")) for _ in range(2))
    by_planes = made is not POINTWISE and 0 < depth < 8 and draw(st.booleans())
    return Chain(
        batch, height, width, depth, draw(extents.filter(lambda n: n > 1)), window, projected, made, pools, by_planes,
        between, behind if projected else draw(epilogues()), draw(epilogues()), draw(seeds),
    )  # fmt: skip


@settings(EXAMPLES, max_examples=32)
@given(chains(), targets, threads)
def test_windows_between_convolutions(chain: Chain, target: str, many: int) -> None:
    ran = chain.run(target, many)
    check(ran, chain.numpy())
    assert ran.templates() == ["rolling_window"]


SHAPES = {
    "one pixel": Chain(1, 1, 1, 8, 16),
    "fewer channels than a vector": Chain(1, 9, 7, 3, 5),
    "a narrow last block": Chain(1, 9, 11, 16, 72),
    "many bands of rows": Chain(1, 61, 5, 4, 16),
    "the last columns and rows under no window": Chain(1, 8, 8, 8, 24, STRIDED),
    "padding wider than the image": Chain(1, 2, 2, 8, 24, Window((5, 5), (1, 1), (4, 4, 4, 4), (1, 1))),
    "a product of its sigmoid": Chain(
        1, 12, 12, 8, 40, between=("bias", "sigmoid"), behind=("bias", "sigmoid", "residual")
    ),
    "an inverted residual": Chain(1, 13, 9, 6, 40, projected=6),
    "a strided one of narrow blocks": Chain(1, 11, 8, 6, 72, STRIDED, 100),
    "a window and its projection": Chain(1, 11, 9, 0, 40, projected=24),
    "one channel projected": Chain(1, 7, 30, 0, 17, STRIDED, 1),
    "zeros around an image that has none": Chain(1, 5, 5, 4, 16, between=("scale", "sigmoid"), behind=()),
    "the first layers of a ResNet": Chain(2, 31, 30, 3, 40, STRIDED, made=STEM, pools=True, by_planes=True),
    "a convolution and a pool": Chain(1, 13, 14, 20, 33, HALVES, made=WINDOW, pools=True),
    "a pool that sees only what is negative": Chain(1, 9, 9, 8, 16, WINDOW, pools=True, between=("sigmoid", "scale")),
    "a first layer before a depthwise one": Chain(1, 20, 17, 3, 24, made=STEM, by_planes=True, projected=12),
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
    ((name, kernel),) = Chain(1, 14, 14, 24, 48, projected=24).run().kernels.items()
    info = kernel_info(name, kernel)
    products = 2 * 14 * 14 * 48 * (24 + 9 + 24)
    assert products < info.flops < 1.25 * products
    assert info.template == "rolling_window"


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        (Chain(1, 112, 112, 16, 96), ""),
        (Chain(1, 28, 28, 32, 192), ""),
        (Chain(1, 28, 28, 32, 192, Window((7, 7), (1, 1), (3, 3, 3, 3), (1, 1))), "49 taps"),
        (Chain(1, 28, 28, 32, 192, Window((5, 5), (1, 1), (2, 2, 2, 2), (1, 1))), "25 taps"),
        (Chain(1, 28, 28, 32, 192, Window((1, 1), (2, 2), (0, 0, 0, 0), (1, 1))), "skips rows"),
        (Chain(1, 56, 56, 24, 144, projected=24), ""),
        (Chain(1, 14, 14, 64, 384, projected=64), "cycles estimated in one kernel"),
        (Chain(1, 112, 112, 0, 32, projected=16), ""),
        (Chain(1, 28, 28, 0, 256, projected=256), "cycles estimated in one kernel"),
        (Chain(1, 224, 224, 3, 64, STRIDED, made=STEM, pools=True, by_planes=True), ""),
        (Chain(1, 56, 56, 64, 64, HALVES, made=WINDOW, pools=True), "cycles estimated in one kernel"),  # Winograd
    ],
)
def test_the_judge_says_why_parts_stay_in_several_kernels(chain: Chain, reason: str) -> None:
    answer = decline_one_kernel(read_rolling_window(chain.asked()), MACHINE, 2)
    assert reason in answer
    assert bool(reason) == bool(answer)


def test_rows_are_not_computed_again_where_channels_are_enough_for_all_threads() -> None:
    assert plan_rolling(read_rolling_window(Chain(1, 14, 14, 64, 384).asked()).sizes, MACHINE, 2).bands == 1


def test_bands_for_all_threads_where_channels_are_too_few() -> None:
    assert plan_rolling(read_rolling_window(Chain(1, 112, 112, 16, 32).asked()).sizes, MACHINE, 8).bands >= 4
