"""Two convolutions in one kernel, against float64 over random geometry, epilogues, vector widths and threads."""

from __future__ import annotations

from dataclasses import dataclass
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.cpu.kernels.conv_chain.plan import ChainPlan, estimate, plans
from backends.cpu.kernels.conv_chain.read import ChainSizes, read_conv_chain
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from tests.backends.cpu.kernels.anchored import Epilogue, check, with_targets
from tests.backends.cpu.kernels.chained import (
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

DILATED = Window((3, 3), (1, 1), (2, 2, 2, 2), (2, 2))
ROWS = Window((5, 1), (2, 1), (2, 0, 1, 0), (1, 1))


@dataclass(frozen=True)
class Pair(Chain):
    """`second(first(image))`, the image being N, H, W and having `depth` channels. What is between and behind as
    `Epilogue.steps`.

    Attributes:
        channels: Of the image between, and of the result.
    """

    image: tuple[int, int, int]
    depth: int
    channels: tuple[int, int]
    first: Window
    second: Window = WINDOW
    by_planes: bool = False
    between: tuple[str, ...] = ("bias", "relu")
    behind: tuple[str, ...] = ("bias", "residual")
    seed: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.image, self.depth)

    @property
    def layers(self) -> list[Layer]:
        batch, *size, depth = self.shape
        found: list[Layer] = []
        for window, channels, steps in zip(
            (self.first, self.second), self.channels, (self.between, self.behind), strict=True
        ):
            size = list(window.output(*size))
            seed = self.seed + 50 * len(found)
            weights = scaled((channels, depth, *window.kernel), seed)
            found.append(Layer(window, weights, Epilogue(steps, (batch, *size, channels), seed)))
            depth = channels
        return found


@st.composite
def chains(draw: st.DrawFn) -> Pair:
    batch, height, width = draw(images)
    first, second = draw(st.just(POINTWISE) | windows()), draw(windows())
    if first.is_pointwise and second.is_pointwise:
        first = WINDOW
    for each in (second, first):
        rows, columns = spans(each)
        height, width = height * first.strides[0] + rows * 2, width * first.strides[1] + columns * 2
    between = draw(inner_epilogues)
    depth = draw(extents)
    by_planes = not first.is_pointwise and depth < 8 and draw(st.booleans())
    return Pair(
        (batch, height, width), depth, (draw(extents), draw(extents)), first, second, by_planes, between,
        draw(epilogues()), draw(seeds),
    )  # fmt: skip


@settings(EXAMPLES, max_examples=32)
@given(chains(), targets, threads)
def test_two_convolutions(chain: Pair, target: str, many: int) -> None:
    chain.check("conv_chain", target, many)


SHAPES = {
    "one pixel": Pair((1, 1, 1), 8, (16, 5), WINDOW),
    "narrowed, then a window": Pair((1, 13, 9), 40, (16, 33), POINTWISE),
    "a window, then widened": Pair((2, 11, 14), 12, (20, 70), WINDOW, POINTWISE),
    "the first layers of a detector": Pair((1, 29, 33), 3, (16, 24), STEM, WINDOW, by_planes=True),
    "planes, then a pointwise one": Pair((1, 21, 18), 3, (10, 7), STRIDED, POINTWISE, by_planes=True),
    "strides on both sides": Pair((1, 27, 31), 9, (17, 16), STRIDED, STRIDED),
    "a dilated window": Pair((1, 12, 10), 6, (18, 9), WINDOW, DILATED),
    "a window of one column": Pair((1, 17, 6), 6, (18, 9), POINTWISE, ROWS),
    "padding wider than the image": Pair((1, 2, 2), 8, (24, 8), POINTWISE, Window((5, 5), (1, 1), (4,) * 4, (1, 1))),
    "one channel between": Pair((1, 9, 9), 5, (1, 4), WINDOW),
    "a product of its sigmoid": Pair((1, 8, 9), 8, (12, 40), WINDOW, between=("bias", "sigmoid")),
    "zeros around an image that has none": Pair((1, 5, 5), 4, (16, 8), POINTWISE, between=("scale", "sigmoid")),
}


@pytest.mark.parametrize(("name", "target"), with_targets(SHAPES))
def test_shapes(name: str, target: str) -> None:
    SHAPES[name].check("conv_chain", target, 3)


@pytest.mark.parametrize("rows", [2, 4])
@pytest.mark.parametrize(
    "name", ["strides on both sides", "a dilated window", "the first layers of a detector", "a window, then widened"]
)
def test_passes_of_several_rows(name: str, rows: int) -> None:
    """The analytic choice makes one row a pass wherever L2 holds all weights."""

    def longest(sizes: ChainSizes, machine: Machine, many: int) -> ChainPlan:
        return max(plans(sizes, machine, many), key=lambda plan: (plan.rows <= rows, plan.rows, -plan.cycles))

    with mock.patch("backends.cpu.kernels.conv_chain.plan.plan_chain", longest):
        ran = SHAPES[name].run()
    check(ran, SHAPES[name].numpy())
    ((_, kernel),) = ran.kernels.items()
    assert f"{rows} at a time" in kernel.made.tile


def test_all_products_are_counted() -> None:
    chain = Pair((1, 14, 14), 24, (48, 32), WINDOW, POINTWISE)
    chain.check_products("conv_chain", 2 * 14 * 14 * (9 * 24 * 48 + 48 * 32))


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        (Pair((1, 640, 640), 3, (16, 32), STRIDED, STRIDED, by_planes=True), ""),
        (Pair((1, 416, 416), 3, (32, 64), WINDOW, STRIDED, by_planes=True), ""),
        (Pair((1, 56, 56), 64, (64, 64), POINTWISE, WINDOW), "cycles estimated in one kernel"),  # Winograd
        (Pair((1, 14, 14), 256, (512, 128), STRIDED, POINTWISE), "cycles estimated in one kernel"),
    ],
)
def test_the_judge_says_why_two_convolutions_stay_in_two_kernels(chain: Pair, reason: str) -> None:
    check_reason(estimate(read_conv_chain(chain.asked()), MACHINE, 2).reason, reason)
