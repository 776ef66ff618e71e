"""Depthwise convolutions over images of which only a call knows the sizes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tvm import relax, sym, tirx
from tvm.ir import TensorLoad
from tvm.relax import op

from backends.cpu.kernels.depthwise.emit_open import blocks_together
from backends.cpu.kernels.shared.open_images import OpenTask
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.cpu.schedule import schedule
from backends.tensorir.emit import int64
from fusion import context
from fusion.structural import find
from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.open_images import RUNS, OpenKernel, Size, check_sizes
from tests.targets import AVX2


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


SQUARE = Window((5, 5), (1, 1), (2, 2, 2, 2), (1, 1))
CASES = {
    "large": (depthwise(SQUARE, 40), "depthwise_conv2d"),
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


@pytest.mark.parametrize(("case", "target"), [("large", AVX2), ("strided", "llvm"), ("dilated", "llvm")])
def test_images_far_beyond_l2_are_read_in_groups_of_channels(case: str, target: str) -> None:
    """An L2 of 512 bytes has too little for the rows under a window, but of the last size."""
    kernel, template = CASES[case]
    check_sizes(kernel, template, 2, target, [(2, 7, 19), (1, 3, 70), (1, 1, 1)], l2_bytes=512)


@pytest.mark.parametrize(
    ("window", "height", "width", "rows", "lanes", "blocks", "together"),
    [
        (SQUARE, 3, 1491, 3, 16, 30, 2),
        (SQUARE, 3, 1491, 3, 8, 60, 4),
        (SQUARE, 6, 700, 6, 16, 30, 4),
        (SQUARE, 6, 400, 6, 16, 30, 30),
        (SQUARE, 3, 1491, 1, 16, 30, 30),
        (SQUARE, 3, 1491, 3, 16, 12, 12),
        (Window((3, 3), (1, 1), (4, 4, 4, 4), (4, 4)), 9, 700, 6, 16, 30, 2),
        (Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1)), 9, 700, 6, 16, 30, 30),
        (Window((2, 2), (2, 2), (0, 0, 0, 0), (1, 1)), 6, 9000, 3, 16, 30, 30),
        (SQUARE, 0, 0, 0, 16, 30, 30),
    ],
)  # fmt: skip
def test_groups_are_what_l2_keeps(
    window: Window, height: int, width: int, rows: int, lanes: int, blocks: int, together: int
) -> None:
    """All blocks, but where they are more than twice L2 and several rows of the result see a row of the image."""
    machine = Machine(lanes, 32, 48 << 10, 2 << 20, 260 << 20)
    task = OpenTask(int64(0), int64(0), int64(rows), int64(0), int64(blocks))
    found = blocks_together(window, int64(height), int64(width), task, machine)
    assert int(sym.Analyzer().simplify(found)) == together


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
