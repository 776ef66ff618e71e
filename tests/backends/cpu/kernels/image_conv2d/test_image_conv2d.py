"""Convolutions of planes, against float64 PyTorch."""

from __future__ import annotations

from hypothesis import given, settings
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
@given(
    images, st.tuples(st.integers(2, 5), extents), pairs, pairs, paddings, pairs, epilogues(), targets, threads, seeds
)
def test_image_conv2d(
    size: tuple, channels: tuple, kernel: tuple, strides: tuple, padding: tuple, dilation: tuple,
    steps: tuple[str, ...], target: str, many: int, seed: int,
) -> None:  # fmt: skip
    counts = (1, *channels)
    templates = check_convolution(
        size, counts, kernel, strides, padding, dilation, steps, target, many, seed, by_planes=True
    )
    assert ("image_conv2d" in templates) == (channels[0] < context.resolve(target).compiler.machine.vector_lanes)
