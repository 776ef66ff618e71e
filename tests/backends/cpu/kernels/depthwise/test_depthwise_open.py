"""Depthwise convolutions over images of which only a call knows the sizes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tvm import relax, tirx
from tvm.ir import TensorLoad
from tvm.relax import op

from backends.cpu.kernels.shared.window import Window
from backends.cpu.schedule import schedule
from fusion import context
from fusion.structural import find
from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.open_images import RUNS, OpenKernel, Size, check_sizes


def depthwise(window: Window, groups: int, members: int = 1) -> OpenKernel:
    """Return a convolution in groups of `members` channels, with a costly function behind it."""
    channels = groups * members
    weight = relax.const(normal((channels, members, *window.kernel), 1))
    bias = relax.const(normal((channels,), 2))

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        conv = b.emit(
            op.nn.conv2d(x, weight, window.strides, window.padding, window.dilation, groups, data_layout="NHWC")
        )
        return op.sigmoid(b.emit(op.add(conv, bias)))

    return OpenKernel(build, lambda n, h, w: [(n, h, w, channels)], window)


CASES = {
    "large": (depthwise(Window((5, 5), (1, 1), (2, 2, 2, 2), (1, 1)), 40), "depthwise_conv2d"),
    "strided": (depthwise(Window((3, 3), (2, 2), (1, 1, 1, 1), (1, 1)), 24), "depthwise_conv2d"),
    "even": (depthwise(Window((4, 4), (1, 1), (1, 1, 2, 2), (1, 1)), 8), "depthwise_conv2d"),
    "dilated": (depthwise(Window((3, 3), (1, 3), (4, 4, 4, 4), (4, 4)), 32), "depthwise_conv2d"),
    "narrow groups": (depthwise(Window((3, 3), (2, 1), (1, 1, 1, 1), (1, 1)), 12, 4), "grouped_conv2d"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("threads", "target", "sizes"), RUNS)
def test_kernels_are_right_at_all_sizes(case: str, threads: int, target: str, sizes: Sequence[Size]) -> None:
    kernel, template = CASES[case]
    check_sizes(kernel, template, threads, target, sizes)


@pytest.mark.parametrize("channels", [64, 88])
def test_images_far_beyond_l2_are_read_in_groups_of_channels(channels: int) -> None:
    """An L2 of 4 KB has too little for the rows under a window, but of the last size."""
    kernel = depthwise(Window((5, 5), (1, 1), (2, 2, 2, 2), (1, 1)), channels)
    sizes = [(2, 7, 19), (1, 2, 40), (3, 1, 70), (2, 3, 5)]
    check_sizes(kernel, "depthwise_conv2d", 2, "llvm", sizes, l2_bytes=4 << 10)


def test_pixels_of_a_tile_are_so_many_elements_behind_the_first() -> None:
    """TVM simplifies each index, and LLVM too: none is a product of sizes."""
    machine = context.resolve("llvm -mcpu=skylake-avx512").compiler.machine
    kernel, template = CASES["large"]
    made = schedule(kernel.func(machine.vector_lanes), machine, 1)
    assert made.template == template, made.note
    loads = [load for loop in find(made.func.body, tirx.For) if loop.loop_var.name == "ry" for load in of_image(loop)]
    assert loads
    assert not any(find(index, tirx.Mul) for load in loads for index in load.indices)


def of_image(loop: tirx.For) -> list[TensorLoad]:
    """Return what is read of tensors of four axes, the image."""
    return [load for load in find(loop.body, TensorLoad) if len(load.indices) == 4]
