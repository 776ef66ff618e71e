"""Windows with convolutions before and behind them over images of which only a call knows the sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.relax import op

from backends.cpu.kernels.shared.window import Window
from backends.cpu.schedule import schedule
from fusion import context
from fusion.structural import find
from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.open_images import RUNS, OpenKernel, Size, check_sizes

SAME = Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
HALF = Window((3, 3), (2, 2), (1, 1, 1, 1), (1, 1))
WIDE = Window((2, 3), (2, 1), (1, 1, 0, 1), (1, 1))


def convolved(b: relax.BlockBuilder, x: relax.Expr, shape: tuple[int, ...], window: Window) -> relax.Expr:
    """Return a convolution and a bias with a relu; its weights have `shape`, O x I."""
    weight = relax.const(normal((*shape, *window.kernel), 1) / np.float32(shape[1] ** 0.5))
    groups = shape[0] if shape[1] == 1 else 1
    made = op.nn.conv2d(x, weight, window.strides, window.padding, window.dilation, groups, data_layout="NHWC")
    return b.emit(op.nn.relu(b.emit(op.add(b.emit(made), relax.const(normal(shape[:1], 2))))))


POINT = Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))


def expanded(window: Window, channels: int) -> OpenKernel:
    """A pointwise convolution and a depthwise one."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return convolved(b, convolved(b, x, (channels, 12), POINT), (channels, 1), window)

    return OpenKernel(build, lambda n, h, w: [(n, h, w, 12)], window)


def projected(window: Window, channels: int) -> OpenKernel:
    """A depthwise convolution, a pointwise one and a residual."""

    def build(b: relax.BlockBuilder, x: relax.Var, residual: relax.Var) -> relax.Expr:
        seen = convolved(b, x, (channels, 1), window)
        return op.add(convolved(b, seen, (20, channels), POINT), residual)

    return OpenKernel(build, lambda n, h, w: [(n, h, w, channels), (n, *window.output(h, w), 20)], window)


def pooled(window: Window, by_planes: bool) -> OpenKernel:
    """The maxima of a convolution."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        image = b.emit(op.permute_dims(x, [0, 2, 3, 1])) if by_planes else x
        made = convolved(b, image, (32, 3 if by_planes else 16), SAME)
        return op.nn.max_pool2d(made, window.kernel, window.strides, window.padding, window.dilation, layout="NHWC")

    return OpenKernel(build, lambda n, h, w: [(n, 3, h, w) if by_planes else (n, h, w, 16)], window)


CASES = {
    "expanded": expanded(SAME, 100),
    "strided": expanded(HALF, 48),
    "one row of the border": expanded(WIDE, 16),
    "projected": projected(SAME, 40),
    "half": projected(HALF, 64),
    "pool": pooled(HALF, by_planes=False),
    "pool of planes": pooled(WIDE, by_planes=True),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("threads", "target", "sizes"), RUNS)
def test_kernels_are_right_at_all_sizes(case: str, threads: int, target: str, sizes: Sequence[Size]) -> None:
    check_sizes(CASES[case], "rolling_window", threads, target, sizes)


def test_rows_of_the_image_are_made_by_one_body() -> None:
    machine = context.resolve("llvm -mcpu=skylake-avx512").compiler.machine
    made = schedule(CASES["strided"].func(machine.vector_lanes), machine, 1)
    assert made.template == "rolling_window", made.note
    products = [loop for loop in find(made.func.body, tirx.For) if loop.loop_var.name == "k"]
    assert len(products) == 1


def test_places_of_lines_are_divided_once() -> None:
    """TVM's simplifier puts what `bind` names in its place at each load: there were 238 such divisions."""
    machine = context.resolve("llvm -mcpu=skylake-avx512").compiler.machine
    made = schedule(CASES["strided"].func(machine.vector_lanes), machine, 1)
    kernel = tvm.IRModule({"kernel": made.func.with_attr("global_symbol", "kernel")})
    simplified = tirx.transform.StmtSimplify()(tirx.transform.FlattenBuffer()(kernel))["kernel"]
    assert len(find(simplified.body, tirx.FloorMod)) < 10
