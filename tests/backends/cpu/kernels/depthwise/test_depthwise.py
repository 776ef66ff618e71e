"""Depthwise convolutions and those in narrow groups, against float64 PyTorch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from backends.cpu.kernels.shared.convolution.depthwise_tiles import depthwise_tiles, window_taps
from backends.cpu.kernels.shared.window import Window
from fusion import context
from tests.backends.cpu.kernels.convolved import check_convolution
from tests.backends.cpu.kernels.drawn import (
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

# Some are wider than the weights that registers keep, of 16 and of 32.
windows = st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 3, 5, 8, 17]))


@settings(EXAMPLES, max_examples=14)
@given(images, extents, windows, pairs, paddings, pairs, epilogues(), targets, threads, seeds, st.booleans())
def test_depthwise(
    size: tuple, channels: int, kernel: tuple, strides: tuple, padding: tuple, dilation: tuple, steps: tuple[str, ...],
    target: str, many: int, seed: int, is_known: bool,
) -> None:  # fmt: skip
    assume(channels > 1)
    counts = (channels, 1, 1)
    templates = check_convolution(
        size, counts, kernel, strides, padding, dilation, steps, target, many, seed, is_known=is_known
    )
    assert templates == ["depthwise_conv2d"]


@settings(EXAMPLES, max_examples=20)
@given(
    images, st.integers(2, 13), st.sampled_from([(1, 2), (1, 8), (2, 2), (2, 4), (4, 4), (8, 8), (4, 16), (16, 16)]),
    pairs, pairs, paddings, pairs, epilogues(), targets, threads, seeds, st.booleans(),
)  # fmt: skip
def test_narrow_groups(
    size: tuple, groups: int, members: tuple[int, int], kernel: tuple, strides: tuple, padding: tuple, dilation: tuple,
    steps: tuple[str, ...], target: str, many: int, seed: int, is_known: bool,
) -> None:  # fmt: skip
    counts = (groups, *members)
    templates = check_convolution(
        size, counts, kernel, strides, padding, dilation, steps, target, many, seed, is_known=is_known
    )
    fits = members[1] <= context.resolve(target).compiler.machine.vector_lanes
    assert templates == ["grouped_conv2d" if fits else "conv2d"]


@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize("columns", [1, 3, 5, 7, 31])
def test_sums_weights_and_a_pixel_have_registers(columns: int, registers: int) -> None:
    """In all points: with 12 sums of 5x5, which leave no registers for weights, 48x48x232 took 1.3 times as long."""
    machine = replace(MACHINE, vector_registers=registers)
    window = Window((3, columns), strides=(1, 1), padding=(1, 15, 1, 15), dilation=(1, 1))
    space = depthwise_tiles((1, 40, 40, 96), window, 3 * columns, machine, 2)
    assert all(point.tile.rows * point.tile.vectors + window_taps(window, machine) + 1 <= registers for point in space)
    assert space.default.tile.rows >= 8


@pytest.mark.parametrize(
    ("shape", "strides", "vectors"),
    [
        ((1, 112, 112, 32), 1, 2),
        ((1, 48, 48, 64), 2, 2),
        ((1, 112, 112, 24), 1, 1),
        ((1, 112, 112, 40), 1, 1),
        ((1, 20, 20, 224), 1, 1),
        ((1, 48, 48, 64), 1, 1),
    ],
)
def test_images_from_beyond_l2_are_read_in_pairs_of_lines(shape: tuple[int, ...], strides: int, vectors: int) -> None:
    """Of 112x112x32 single lines took 1.3 times as long, of images that L2 has pairs did."""
    machine = replace(MACHINE, vector_lanes=16, vector_registers=32, l2_bytes=2 << 20)
    window = Window((3, 3), strides=(strides, strides), padding=(1, 1, 1, 1), dilation=(1, 1))
    assert depthwise_tiles(shape, window, 9, machine, 2).default.tile.vectors == vectors
    halves = replace(machine, vector_lanes=8, vector_registers=16)
    assert depthwise_tiles(shape, window, 9, halves, 2).default.tile.vectors == 1
    assert depthwise_tiles(shape, window, 9 * 4, machine, 2).default.tile.vectors == 1, "of groups"
