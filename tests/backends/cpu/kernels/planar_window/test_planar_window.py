"""Windows over N, C, H, W planes against float64 PyTorch: depthwise convolutions, max and average pooling."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
import torch
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional
from tvm import relax

from tests.backends.cpu.kernels.anchored import EPILOGUES, TARGETS, Epilogue, check, normal, run, wide

# Shrinking an example compiles hundreds of kernels; the one found is small enough.
EXAMPLES = settings(max_examples=20, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
extents = st.sampled_from([1, 2, 3, 5, 7, 8, 9, 14, 16, 17, 24, 31, 33, 50, 70])
images = st.tuples(st.integers(1, 2), st.integers(2, 9), extents, extents)
kernels = st.tuples(st.integers(1, 7), st.integers(1, 7))
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
paddings = st.tuples(*[st.integers(0, 3)] * 4)  # top, left, bottom, right
steps_of = st.lists(st.sampled_from(EPILOGUES[:-1]), max_size=3).map(tuple)
targets = st.sampled_from(TARGETS)
threads = st.integers(1, 3)
seeds = st.integers(0, 10**6)


def grown(size: tuple, kernel: tuple, padding: tuple, dilation: tuple) -> tuple:
    """Return an image that is as large as the window where it would be smaller."""
    spans = [(k - 1) * d + 1 - a - b for k, d, a, b in zip(kernel, dilation, padding[:2], padding[2:], strict=True)]
    return (*size[:2], *(max(extent, span) for extent, span in zip(size[2:], spans, strict=True)))


def padded(data: np.ndarray, padding: tuple, value: float) -> torch.Tensor:
    top, left, bottom, right = padding
    return functional.pad(wide(data), (left, right, top, bottom), value=value)


def check_depthwise(
    size: tuple, kernel: tuple, strides: tuple, padding: tuple, dilation: tuple, steps: tuple[str, ...], target: str,
    many: int, seed: int, is_known: bool = True,
) -> None:  # fmt: skip
    data = normal(grown(size, kernel, padding, dilation), seed)
    channels = data.shape[1]
    weight = normal((channels, 1, *kernel), seed + 1) / np.float32(np.sqrt(kernel[0] * kernel[1]))
    expected = functional.conv2d(padded(data, padding, 0), wide(weight), None, strides, 0, dilation, channels).numpy()
    epilogue = Epilogue(steps, expected.shape, seed)

    def build(b: relax.BlockBuilder, x: relax.Var, *others: relax.Var) -> relax.Expr:
        taps, extra = (relax.const(weight), others) if is_known else (others[0], others[1:])
        return epilogue.relax(b, relax.op.nn.conv2d(x, taps, strides, padding, dilation, channels), extra)

    given = [] if is_known else [weight]
    ran = run(build, [data, *given, *epilogue.arrays()], target, many)
    check(ran, epilogue.numpy(expected))
    assert "planar_window" in ran.templates()


@EXAMPLES
@given(images, kernels, pairs, paddings, pairs, steps_of, targets, threads, seeds, st.booleans())
def test_depthwise(
    size: tuple, kernel: tuple, strides: tuple, padding: tuple, dilation: tuple, steps: tuple[str, ...], target: str,
    many: int, seed: int, is_known: bool,
) -> None:  # fmt: skip
    check_depthwise(size, kernel, strides, padding, dilation, steps, target, many, seed, is_known)


@pytest.mark.parametrize(
    ("strides", "padding", "target"),
    [
        (strides, padding, TARGETS[(i + j) % len(TARGETS)])  # all pairs of two
        for i, strides in enumerate([(1, 1), (2, 2), (1, 3)])
        for j, padding in enumerate([(0, 0, 0, 0), (1, 1, 1, 1), (0, 2, 3, 0)])
    ],
)
def test_planes_larger_than_a_cache_are_cut_into_bands(strides: tuple, padding: tuple, target: str) -> None:
    check_depthwise((1, 2, 90, 130), (3, 3), strides, padding, (1, 1), ("channel", "relu"), target, 3, 0)


def test_regrouped_rows() -> None:
    for size in ((1, 3, 6, 40), (2, 3, 6, 5)):
        check_depthwise(size, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), ("relu", "regroup"), "llvm", 2, 0)


@EXAMPLES
@given(images, kernels, pairs, paddings, pairs, st.booleans(), st.booleans(), steps_of, targets, threads, seeds)
def test_max_pool(
    size: tuple, kernel: tuple, strides: tuple, padding: tuple, dilation: tuple, ceil_mode: bool, infinite: bool,
    steps: tuple[str, ...], target: str, many: int, seed: int,
) -> None:  # fmt: skip
    assume(all(pad < k for pad, k in zip(padding, kernel * 2, strict=True)))
    data = normal(grown(size, kernel, padding, dilation), seed)
    if infinite:
        data[..., ::2] = -inf
        steps = ()
    # What a partial window at the end reads is padding too.
    window = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    rests = [
        (extent + a + b - span) % s
        for extent, a, b, span, s in zip(data.shape[2:], padding[:2], padding[2:], window, strides, strict=True)
    ]
    extra = [(s - rest) % s if ceil_mode else 0 for s, rest in zip(strides, rests, strict=True)]
    ends = [b + more for b, more in zip(padding[2:], extra, strict=True)]
    assume(all(end < span for end, span in zip(ends, window, strict=True)))
    expected = functional.max_pool2d(
        padded(data, (*padding[:2], *ends), -inf), kernel, strides, 0, dilation
    ).numpy()  # fmt: skip
    epilogue = Epilogue(steps, expected.shape, seed)

    def build(b: relax.BlockBuilder, x: relax.Var, *extra: relax.Var) -> relax.Expr:
        return epilogue.relax(b, relax.op.nn.max_pool2d(x, kernel, strides, padding, dilation, ceil_mode), extra)

    ran = run(build, [data, *epilogue.arrays()], target, many)
    if infinite:
        np.testing.assert_array_equal(ran.outputs[0], expected.astype("float32"))
    else:
        check(ran, epilogue.numpy(expected))
    assert "planar_window" in ran.templates()


@EXAMPLES
@given(images, kernels, pairs, paddings, pairs, st.booleans(), steps_of, targets, threads, seeds)
def test_average_pool(
    size: tuple, kernel: tuple, strides: tuple, padding: tuple, dilation: tuple, counts_padding: bool,
    steps: tuple[str, ...], target: str, many: int, seed: int,
) -> None:  # fmt: skip
    assume(all(pad < k for pad, k in zip(padding, kernel * 2, strict=True)))
    data = normal(grown(size, kernel, padding, dilation), seed)
    ones = torch.ones(data.shape[1], 1, *kernel, dtype=torch.float64)

    def sums(of: np.ndarray, outside: float) -> np.ndarray:
        image = padded(of, padding, outside)
        return functional.conv2d(image, ones, None, strides, 0, dilation, of.shape[1]).numpy()

    counts = sums(np.ones_like(data), float(counts_padding))
    expected = sums(data, 0) / np.maximum(counts, 1)
    epilogue = Epilogue(steps, expected.shape, seed)

    def build(b: relax.BlockBuilder, x: relax.Var, *extra: relax.Var) -> relax.Expr:
        pool = relax.op.nn.avg_pool2d(x, kernel, strides, padding, dilation, False, counts_padding)
        return epilogue.relax(b, pool, extra)

    ran = run(build, [data, *epilogue.arrays()], target, many)
    check(ran, epilogue.numpy(expected))
    whole = kernel == data.shape[2:] and not any(padding)  # a mean
    assert ("planar_window" in ran.templates()) != whole


def test_average_of_the_whole_image_is_a_mean() -> None:
    data = normal((2, 5, 7, 3), 0)
    ran = run(lambda b, x: relax.op.nn.avg_pool2d(x, (7, 3)), [data], "llvm", 2)
    check(ran, [data.astype("float64").mean((2, 3), keepdims=True)])
    assert "planar_window" not in ran.templates()


def test_what_is_left_to_other_forms() -> None:
    data, wide_weight = normal((1, 4, 9, 9), 0), normal((8, 1, 3, 3), 1)
    builds = (
        lambda b, x: relax.op.nn.avg_pool2d(x, (2, 2), (2, 2), ceil_mode=True),
        lambda b, x: relax.op.nn.max_pool2d(x, (2, 2), layout="NHWC"),
        lambda b, x: relax.op.nn.conv2d(x, relax.const(wide_weight), groups=4),
    )
    for build in builds:
        assert "planar_window" not in run(build, [data], "llvm", 2).templates()
