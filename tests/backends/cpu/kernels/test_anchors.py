"""Every anchor against float64 PyTorch over random geometry, epilogues, vector widths and thread counts."""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod
from unittest import mock

import numpy as np
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional
from tvm import relax

from backends.cpu.kernels.conv2d import plan as conv2d
from backends.cpu.kernels.shared.blocking import choose_blocking
from backends.cpu.kernels.shared.convolution import winograd_plan
from backends.cpu.kernels.shared.convolution.winograd_plan import TRANSFORMS
from backends.cpu.kernels.shared.convolution.winograd_transform import Transform
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.machine import Machine
from backends.tensorir.space import Space
from fusion import context
from tests.backends.cpu.kernels.anchored import (
    EPILOGUES,
    TARGETS,
    Epilogue,
    channels_last,
    check,
    convolve,
    normal,
    run,
    wide,
)

# Shrinking an example compiles hundreds of kernels; the one found is small enough.
EXAMPLES = settings(max_examples=8, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
extents = st.sampled_from([1, 2, 3, 5, 7, 8, 13, 16, 17, 19, 31, 33, 48, 65])
targets = st.sampled_from(TARGETS)
threads = st.integers(1, 3)
MACHINE = Machine(vector_lanes=16, vector_registers=32, l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20)
seeds = st.integers(0, 10**6)


@st.composite
def epilogues(draw: st.DrawFn) -> tuple[str, ...]:
    """Draw up to four steps; `regroup` moves rows and can only be the last, `fork` makes a second output."""
    steps = draw(st.lists(st.sampled_from(EPILOGUES[:-2]), max_size=3))
    if steps and draw(st.booleans()):
        steps.insert(draw(st.integers(0, len(steps) - 1)), "fork")
    return (*steps, *(["regroup"] if draw(st.booleans()) else []))


@EXAMPLES
@given(st.lists(extents, min_size=1, max_size=3), extents, extents, epilogues(), targets, threads, seeds)
def test_matmul(
    rows: list[int], depth: int, channels: int, steps: tuple[str, ...], target: str, many: int, seed: int
) -> None:
    assume(prod(rows) * max(depth, channels) < 60_000)
    data, weight = normal((*rows, depth), seed), normal((depth, channels), seed)
    epilogue = Epilogue(steps, (*rows, channels), seed)

    def build(b: relax.BlockBuilder, x: relax.Var, *extra: relax.Var) -> relax.Expr:
        return epilogue.relax(b, relax.op.matmul(x, relax.const(weight)), extra)

    ran = run(build, [data, *epilogue.arrays()], target, many)
    check(ran, epilogue.numpy(data.astype("float64") @ weight))
    assert ran.templates() == ["matmul"]


@st.composite
def batches(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw two batch shapes that broadcast against each other."""
    full = draw(st.lists(st.integers(1, 4), max_size=3))
    left, right = ([1 if draw(st.booleans()) else n for n in full] for _ in range(2))
    return tuple(left[draw(st.integers(0, len(full))) :]), tuple(right)


@EXAMPLES
@given(batches(), extents, extents, extents, epilogues(), targets, threads, seeds)
def test_batch_matmul(
    batch: tuple[tuple[int, ...], tuple[int, ...]], rows: int, depth: int, channels: int, steps: tuple[str, ...],
    target: str, many: int, seed: int,
) -> None:  # fmt: skip
    left, right = normal((*batch[0], rows, depth), seed), normal((*batch[1], depth, channels), seed + 1)
    expected = left.astype("float64") @ right
    epilogue = Epilogue(steps, expected.shape, seed)

    def build(b: relax.BlockBuilder, x: relax.Var, y: relax.Var, *extra: relax.Var) -> relax.Expr:
        return epilogue.relax(b, relax.op.matmul(x, y), extra)

    ran = run(build, [left, right, *epilogue.arrays()], target, many)
    check(ran, epilogue.numpy(expected))
    assert ran.templates() == ["batch_matmul"]


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
paddings = st.tuples(*[st.integers(0, 3)] * 4)  # top, left, bottom, right
images = st.tuples(st.integers(1, 2), st.integers(1, 14), st.integers(1, 30))
# (groups, input channels per group, output channels per group)
channel_counts = st.tuples(st.sampled_from([1, 1, 1, 2, 3]), *[st.sampled_from([1, 2, 3, 5, 16, 17, 24, 33])] * 2)


def check_convolution(
    size: tuple, channels: tuple, kernel: tuple, strides: tuple, padding: tuple, dilation: tuple,
    steps: tuple[str, ...],
    target: str, many: int, seed: int, by_planes: bool = False,
) -> list[str]:  # fmt: skip
    """Compare one convolution with PyTorch; `by_planes`: the image lies so. Returns the templates that made it."""
    groups, depth, out = channels
    # An image smaller than the window grows to one output pixel.
    spans = [(k - 1) * d + 1 - a - b for k, d, a, b in zip(kernel, dilation, padding[:2], padding[2:], strict=True)]
    image = [max(extent, span) for extent, span in zip(size[1:], spans, strict=True)]
    data = normal((size[0], *image, groups * depth), seed)
    weight = normal((groups * out, depth, *kernel), seed + 1) / np.float32((depth * prod(kernel)) ** 0.5)
    expected = convolve(data, weight, strides, padding, dilation, groups)
    epilogue = Epilogue(steps, expected.shape, seed)

    def build(b: relax.BlockBuilder, x: relax.Var, *extra: relax.Var) -> relax.Expr:
        image = b.emit(relax.op.permute_dims(x, [0, 2, 3, 1])) if by_planes else x
        conv = relax.op.nn.conv2d(image, relax.const(weight), strides, padding, dilation, groups, data_layout="NHWC")
        return epilogue.relax(b, conv, extra)

    image_of = np.ascontiguousarray(data.transpose(0, 3, 1, 2)) if by_planes else data
    ran = run(build, [image_of, *epilogue.arrays()], target, many)
    check(ran, epilogue.numpy(expected))
    return ran.templates()


@settings(EXAMPLES, max_examples=14)
@given(images, channel_counts, pairs, pairs, paddings, pairs, epilogues(), targets, threads, seeds)
def test_conv2d(
    size: tuple, channels: tuple, kernel: tuple, strides: tuple, padding: tuple, dilation: tuple,
    steps: tuple[str, ...],
    target: str, many: int, seed: int,
) -> None:  # fmt: skip
    templates = check_convolution(size, channels, kernel, strides, padding, dilation, steps, target, many, seed)
    (anchored,) = set(templates) - {"stitch_stages"}  # a regrouping of one channel stays apart
    assert anchored in {"conv2d", "matmul", "depthwise_conv2d", "grouped_conv2d", "winograd"}


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


@settings(EXAMPLES, max_examples=16)
@given(
    images, st.tuples(extents, extents), st.tuples(*[st.integers(0, 2)] * 4), st.sampled_from(TRANSFORMS),
    epilogues(), targets, threads, seeds,
)  # fmt: skip
def test_winograd(
    size: tuple, channels: tuple, padding: tuple, transform: Transform, steps: tuple[str, ...], target: str,
    many: int, seed: int,
) -> None:  # fmt: skip
    """Where the cost model would rather have the sum too."""
    sum_is_slow = replace(choose_blocking(Extents(1, 1, 1, 1, 16, (), 1, 16, 4), MACHINE, 1), cycles=inf)
    sums = Space(sum_is_slow, lambda: iter([sum_is_slow]))
    with (
        mock.patch.object(winograd_plan, "TRANSFORMS", (transform,)),
        mock.patch.object(conv2d, "blocking_space", return_value=sums),
    ):
        templates = check_convolution(size, (1, *channels), (3, 3), (1, 1), padding, (1, 1), steps, target, many, seed)
    assert set(templates) - {"stitch_stages"} == {"winograd"}


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


@EXAMPLES
@given(
    images, st.integers(1, 3), extents, extents, pairs, pairs, paddings, epilogues(), st.data(), targets, threads, seeds
)
def test_conv2d_transpose(
    size: tuple, groups: int, depth: int, out: int, kernel: tuple, strides: tuple, padding: tuple,
    steps: tuple[str, ...], data: st.DataObject, target: str, many: int, seed: int,
) -> None:  # fmt: skip
    dilation = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 2)), "dilation")
    # As Relax asks: smaller than the stride.
    extra = tuple(data.draw(st.integers(0, s - 1), "output_padding") for s in strides)
    x = normal((*size, groups * depth), seed)
    weight = normal((groups * depth, out, *kernel), seed + 1) / np.float32(depth**0.5)
    planes = wide(x).permute(0, 3, 1, 2)
    full = functional.conv_transpose2d(planes, wide(weight), None, strides, 0, 0, groups, dilation)
    full = functional.pad(full, (0, extra[1], 0, extra[0]))
    top, left, bottom, right = padding
    assume(full.shape[2] > top + bottom and full.shape[3] > left + right)
    expected = channels_last(full[:, :, top : full.shape[2] - bottom, left : full.shape[3] - right])

    epilogue = Epilogue(steps, expected.shape, seed)

    def build(b: relax.BlockBuilder, v: relax.Var, *others: relax.Var) -> relax.Expr:
        made = relax.op.nn.conv2d_transpose(
            v, relax.const(weight), strides, padding, extra, dilation, groups, data_layout="NHWC", kernel_layout="IOHW"
        )
        return epilogue.relax(b, made, others)

    ran = run(build, [x, *epilogue.arrays()], target, many)
    check(ran, epilogue.numpy(expected))
    by_channel = groups > 1 and depth == out == 1
    assert by_channel or {"conv2d_transpose", "matmul"} & set(ran.templates())


def test_large_images_are_cut_into_parallel_tasks() -> None:
    shape = (1, 28, 28)
    for target in TARGETS:
        for channels in ((1, 64, 128), (4, 32, 24)):
            templates = check_convolution(
                shape, channels, (5, 5), (1, 1), (2, 2, 2, 2), (1, 1), ("bias", "relu"), target, 3, 0
            )
            assert templates == ["conv2d"]


def test_one_row_and_one_channel() -> None:
    for rows, depth, channels in ((1, 65, 100), (100, 65, 1), (1, 1, 1)):
        data, weight = normal((rows, depth), 0), normal((depth, channels), 1)
        for target in TARGETS:
            ran = run(lambda b, x, w=weight: relax.op.matmul(x, relax.const(w)), [data], target, 2)
            check(ran, [data.astype("float64") @ weight])
