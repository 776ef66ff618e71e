"""Two convolutions in one kernel, against float64 over random geometry, epilogues, vector widths and threads."""

from __future__ import annotations

from dataclasses import dataclass
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, tirx

from backends.cpu.anchors.conv_chain_plan import ChainPlan, decline_one_kernel, plans
from backends.cpu.anchors.conv_chain_stages import ChainSizes, read_conv_chain
from backends.cpu.anchors.window import Window
from backends.cpu.kernel_info import kernel_info
from fusion.context import Machine
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
    seeds,
    targets,
    threads,
)
from tests.backends.cpu.anchors.test_attention import always
from tests.backends.cpu.anchors.test_rolling_window import POINTWISE, STEM, STRIDED, WINDOW, windows

op = relax.op
DILATED = Window((3, 3), (1, 1), (2, 2, 2, 2), (2, 2))
ROWS = Window((5, 1), (2, 1), (2, 0, 1, 0), (1, 1))


@dataclass(frozen=True)
class Chain:
    """`second(first(image))`, the image having `depth` channels. What is between and behind as `Epilogue.steps`.

    Attributes:
        channels: Of the image between, and of the result.
        by_planes: Whether the image lies N, C, H, W.
    """

    shape: tuple[int, int, int]
    depth: int
    channels: tuple[int, int]
    first: Window
    second: Window = WINDOW
    by_planes: bool = False
    between: tuple[str, ...] = ("bias", "relu")
    behind: tuple[str, ...] = ("bias", "residual")
    seed: int = 0

    @property
    def layers(self) -> list[tuple[Window, np.ndarray, Epilogue]]:
        """Return window, weights (O x I x H x W) and epilogue of each."""
        batch, *size = self.shape
        depth, found = self.depth, []
        for window, channels, steps in zip(
            (self.first, self.second), self.channels, (self.between, self.behind), strict=True
        ):
            size = list(window.output(*size))
            seed = self.seed + 50 * len(found)
            weights = normal((channels, depth, *window.kernel), seed)
            weights /= np.float32(weights[0].size ** 0.5)
            found.append((window, weights, Epilogue(steps, (batch, *size, channels), seed)))
            depth = channels
        return found

    def arrays(self) -> list[np.ndarray]:
        """Return the image, and what the epilogues read."""
        data = normal((*self.shape, self.depth), self.seed)
        given = np.ascontiguousarray(data.transpose(0, 3, 1, 2)) if self.by_planes else data
        return [given, *(array for *_, epilogue in self.layers for array in epilogue.arrays())]

    def relax(self, b: relax.BlockBuilder, x: relax.Var, *extra: relax.Var) -> relax.Expr:
        x = b.emit(op.permute_dims(x, [0, 2, 3, 1])) if self.by_planes else x
        for window, weights, epilogue in self.layers:
            at = window.strides, window.padding, window.dilation
            value = op.nn.conv2d(x, relax.const(weights), *at, data_layout="NHWC")
            many = len(epilogue.arrays())
            x, extra = epilogue.relax(b, value, extra[:many]), extra[many:]
        return x

    def numpy(self) -> list[np.ndarray]:
        results = [normal((*self.shape, self.depth), self.seed).astype("float64")]
        for window, weights, epilogue in self.layers:
            (image,) = results
            results = epilogue.numpy(convolve(image, weights, window.strides, window.padding, window.dilation, 1))
        return results

    def run(self, target: str = "llvm", many: int = 2) -> Ran:
        return run(self.relax, self.arrays(), target, many, judge=always)

    def asked(self) -> tirx.PrimFunc:
        """Return the kernel that the judge is asked about."""
        return one_kernel(self.relax, self.arrays())


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    batch, height, width = draw(images)
    first, second = draw(st.just(POINTWISE) | windows()), draw(windows())
    if first.is_pointwise and second.is_pointwise:
        first = WINDOW
    for each in (second, first):
        spans = [(k - 1) * d + 1 for k, d in zip(each.kernel, each.dilation, strict=True)]
        height, width = height * first.strides[0] + spans[0] * 2, width * first.strides[1] + spans[1] * 2
    between = tuple(step for step in draw(epilogues()) if step not in ("fork", "regroup"))
    depth = draw(extents)
    by_planes = not first.is_pointwise and depth < 8 and draw(st.booleans())
    return Chain(
        (batch, height, width), depth, (draw(extents), draw(extents)), first, second, by_planes, between,
        draw(epilogues()), draw(seeds),
    )  # fmt: skip


@settings(EXAMPLES, max_examples=32)
@given(chains(), targets, threads)
def test_two_convolutions(chain: Chain, target: str, many: int) -> None:
    ran = chain.run(target, many)
    check(ran, chain.numpy())
    assert ran.templates() == ["conv_chain"]


SHAPES = {
    "one pixel": Chain((1, 1, 1), 8, (16, 5), WINDOW),
    "narrowed, then a window": Chain((1, 13, 9), 40, (16, 33), POINTWISE),
    "a window, then widened": Chain((2, 11, 14), 12, (20, 70), WINDOW, POINTWISE),
    "the first layers of a detector": Chain((1, 29, 33), 3, (16, 24), STEM, WINDOW, by_planes=True),
    "planes, then a pointwise one": Chain((1, 21, 18), 3, (10, 7), STRIDED, POINTWISE, by_planes=True),
    "strides on both sides": Chain((1, 27, 31), 9, (17, 16), STRIDED, STRIDED),
    "a dilated window": Chain((1, 12, 10), 6, (18, 9), WINDOW, DILATED),
    "a window of one column": Chain((1, 17, 6), 6, (18, 9), POINTWISE, ROWS),
    "padding wider than the image": Chain((1, 2, 2), 8, (24, 8), POINTWISE, Window((5, 5), (1, 1), (4,) * 4, (1, 1))),
    "one channel between": Chain((1, 9, 9), 5, (1, 4), WINDOW),
    "a product of its sigmoid": Chain((1, 8, 9), 8, (12, 40), WINDOW, between=("bias", "sigmoid")),
    "zeros around an image that has none": Chain((1, 5, 5), 4, (16, 8), POINTWISE, between=("scale", "sigmoid")),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str, target: str) -> None:
    ran = SHAPES[name].run(target, 3)
    check(ran, SHAPES[name].numpy())
    assert ran.templates() == ["conv_chain"]


@pytest.mark.parametrize("rows", [2, 4])
@pytest.mark.parametrize(
    "name", ["strides on both sides", "a dilated window", "the first layers of a detector", "a window, then widened"]
)
def test_passes_of_several_rows(name: str, rows: int) -> None:
    """The analytic choice makes one row a pass wherever L2 holds all weights."""

    def longest(sizes: ChainSizes, machine: Machine, many: int) -> ChainPlan:
        return max(plans(sizes, machine, many), key=lambda plan: (plan.rows <= rows, plan.rows, -plan.cycles))

    with mock.patch("backends.cpu.anchors.conv_chain_plan.plan_chain", longest):
        ran = SHAPES[name].run()
    check(ran, SHAPES[name].numpy())
    ((_, kernel),) = ran.kernels.items()
    assert f"{rows} at a time" in kernel.made.tile


def test_all_products_are_counted() -> None:
    ((name, kernel),) = Chain((1, 14, 14), 24, (48, 32), WINDOW, POINTWISE).run().kernels.items()
    info = kernel_info(name, kernel)
    products = 2 * 14 * 14 * (9 * 24 * 48 + 48 * 32)
    assert products < info.flops < 1.25 * products
    assert info.template == "conv_chain"


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        (Chain((1, 640, 640), 3, (16, 32), STRIDED, STRIDED, by_planes=True), ""),
        (Chain((1, 416, 416), 3, (32, 64), WINDOW, STRIDED, by_planes=True), ""),
        (Chain((1, 56, 56), 64, (64, 64), POINTWISE, WINDOW), "cycles estimated in one kernel"),  # Winograd
        (Chain((1, 14, 14), 256, (512, 128), STRIDED, POINTWISE), "cycles estimated in one kernel"),
    ],
)
def test_the_judge_says_why_two_convolutions_stay_in_two_kernels(chain: Chain, reason: str) -> None:
    answer = decline_one_kernel(read_conv_chain(chain.asked()), MACHINE, 2)
    assert reason in answer
    assert bool(reason) == bool(answer)
