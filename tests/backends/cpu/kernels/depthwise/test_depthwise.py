"""Depthwise convolutions and those in narrow groups, against float64 PyTorch."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fusion import context
from tests.backends.cpu.kernels.convolved import check_convolution
from tests.backends.cpu.kernels.drawn import (
    EXAMPLES,
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
@given(images, extents, pairs, pairs, paddings, pairs, epilogues(), targets, threads, seeds)
def test_depthwise(
    size: tuple, channels: int, kernel: tuple, strides: tuple, padding: tuple, dilation: tuple, steps: tuple[str, ...],
    target: str, many: int, seed: int,
) -> None:  # fmt: skip
    assume(channels > 1)
    counts = (channels, 1, 1)
    templates = check_convolution(size, counts, kernel, strides, padding, dilation, steps, target, many, seed)
    assert templates == ["depthwise_conv2d"]


@settings(EXAMPLES, max_examples=20)
@given(
    images, st.integers(2, 13), st.sampled_from([(1, 2), (1, 8), (2, 2), (2, 4), (4, 4), (8, 8), (4, 16), (16, 16)]),
    pairs, pairs, paddings, pairs, epilogues(), targets, threads, seeds,
)  # fmt: skip
def test_narrow_groups(
    size: tuple, groups: int, members: tuple[int, int], kernel: tuple, strides: tuple, padding: tuple, dilation: tuple,
    steps: tuple[str, ...], target: str, many: int, seed: int,
) -> None:  # fmt: skip
    counts = (groups, *members)
    templates = check_convolution(size, counts, kernel, strides, padding, dilation, steps, target, many, seed)
    fits = members[1] <= context.resolve(target).compiler.machine.vector_lanes
    assert templates == ["grouped_conv2d" if fits else "conv2d"]
