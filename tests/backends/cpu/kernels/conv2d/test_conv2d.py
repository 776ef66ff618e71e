"""Convolutions, against float64 PyTorch, as a sum and where Winograd's method has to take them."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.cpu.kernels.conv2d import plan as conv2d
from backends.cpu.kernels.shared.blocking import choose_blocking
from backends.cpu.kernels.shared.convolution import winograd_plan
from backends.cpu.kernels.shared.convolution.winograd_plan import TRANSFORMS
from backends.cpu.kernels.shared.convolution.winograd_transform import Transform
from backends.cpu.kernels.shared.extents import Extents
from backends.tensorir.space import Space
from tests.backends.cpu.kernels.anchored import TARGETS
from tests.backends.cpu.kernels.convolved import check_convolution
from tests.backends.cpu.kernels.drawn import (
    EXAMPLES,
    MACHINE,
    channel_counts,
    epilogues,
    extents,
    images,
    paddings,
    pairs,
    seeds,
    targets,
    threads,
)


@settings(EXAMPLES, max_examples=14)
@given(images, channel_counts, pairs, pairs, paddings, pairs, epilogues(), targets, threads, seeds, st.booleans())
def test_conv2d(
    size: tuple, channels: tuple, kernel: tuple, strides: tuple, padding: tuple, dilation: tuple,
    steps: tuple[str, ...],
    target: str, many: int, seed: int, is_known: bool,
) -> None:  # fmt: skip
    templates = check_convolution(
        size, channels, kernel, strides, padding, dilation, steps, target, many, seed, is_known=is_known
    )
    (anchored,) = set(templates) - {"stitch_stages"}  # a regrouping of one channel stays apart
    assert anchored in {"conv2d", "matmul", "depthwise_conv2d", "grouped_conv2d", "winograd"}


@settings(EXAMPLES, max_examples=16)
@given(
    images, st.tuples(extents, extents), st.tuples(*[st.integers(0, 2)] * 4), st.sampled_from(TRANSFORMS),
    epilogues(), targets, threads, seeds, st.booleans(),
)  # fmt: skip
def test_winograd(
    size: tuple, channels: tuple, padding: tuple, transform: Transform, steps: tuple[str, ...], target: str,
    many: int, seed: int, is_known: bool,
) -> None:  # fmt: skip
    """Where the cost model would rather have the sum too."""
    sum_is_slow = replace(choose_blocking(Extents(1, 1, 1, 1, 16, (), 1, 16, 4), MACHINE, 1), cycles=inf)
    sums = Space(sum_is_slow, lambda: iter([sum_is_slow]))
    with (
        mock.patch.object(winograd_plan, "TRANSFORMS", (transform,)),
        mock.patch.object(conv2d, "blocking_space", return_value=sums),
    ):
        templates = check_convolution(
            size, (1, *channels), (3, 3), (1, 1), padding, (1, 1), steps, target, many, seed, is_known=is_known
        )
    assert set(templates) - {"stitch_stages"} == {"winograd"}


def test_large_images_are_cut_into_parallel_tasks() -> None:
    shape = (1, 28, 28)
    for target in TARGETS:
        for channels in ((1, 64, 128), (4, 32, 24)):
            templates = check_convolution(
                shape, channels, (5, 5), (1, 1), (2, 2, 2, 2), (1, 1), ("bias", "relu"), target, 3, 0
            )
            assert templates == ["conv2d"]
