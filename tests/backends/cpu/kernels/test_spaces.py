"""Every point of every template's space is right, and has an estimate; the default is one of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
import pytest
from tvm import relax

from backends.cpu.kernels import stitch_stages
from backends.cpu.kernels.priority import TEMPLATES
from backends.cpu.kernels.stitch_stages.plan import stitch_space
from backends.cpu.kernels.stitch_stages.read import StageGroup
from backends.cpu.kernels.template import Template
from backends.cpu.machine import Machine
from backends.cpu.schedule import schedule_with
from backends.tensorir.space import Space
from fusion import context
from tests.backends.cpu.kernels import memory_bound as kernels
from tests.backends.cpu.kernels.anchored import normal, run
from tests.backends.cpu.kernels.attention.test_attention import always
from tests.backends.cpu.kernels.templates import changed
from tests.passes.modules import Build

op = relax.op
MOST = 12
"""Points of a space that are run, spread over it."""


@dataclass
class Sampled:
    """The space of a template with another default: the point at `share` of the way through it."""

    template: Template[Any, Any]
    share: float
    points: int = 0

    def __call__(self, roles: Any, machine: Machine, threads: int) -> Space[Any]:
        space = self.template.space(roles, machine, threads)
        points = list(space)
        self.points = len(points)
        assert space.default in points
        assert all(isfinite(point.cycles) and point.cycles > 0 for point in points)
        return Space(points[int(self.share * (len(points) - 1))], space.every)


def matmul(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Normalised rows times two matrices, one a gate of the other."""
    ones = relax.const(np.ones(19, "float32"))
    rows = b.emit(op.nn.layer_norm(x, ones, ones, [-1]))
    gate, value = (b.emit(op.matmul(rows, relax.const(normal((19, 37), seed)))) for seed in (1, 2))
    return op.multiply(b.emit(op.sigmoid(gate)), value)


def batch_matmul(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return relax.op.matmul(x, b.emit(relax.op.permute_dims(x, [0, 2, 1])))


def attention(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    scores = b.emit(relax.op.matmul(x, b.emit(relax.op.permute_dims(x, [0, 2, 1]))))
    return relax.op.matmul(b.emit(relax.op.nn.softmax(b.emit(relax.op.tanh(scores)), -1)), x)


def convolution(
    groups: int, depth: int, out: int, kernel: int, *, by_planes: bool = False, layout: str = "NHWC"
) -> Build:
    weight = normal((out, depth, kernel, kernel), 1) / np.float32(kernel * depth**0.5)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        image = b.emit(relax.op.permute_dims(x, [0, 2, 3, 1])) if by_planes else x
        made = relax.op.nn.conv2d(image, relax.const(weight), 1, kernel // 2, groups=groups, data_layout=layout)
        return relax.op.nn.relu(made)

    return build


def expanded(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    image = op.nn.relu(convolution(1, 12, 100, 1)(b, x))
    return convolution(100, 1, 100, 3)(b, b.emit(image))


def narrowed(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    image = op.nn.relu(convolution(1, 12, 20, 1)(b, x))
    return convolution(1, 20, 36, 3)(b, b.emit(image))


def transposed(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    weight = relax.const(normal((20, 40, 3, 3), 1) / np.float32(10))
    made = relax.op.nn.conv2d_transpose(x, weight, 2, 1, 1, data_layout="NHWC", kernel_layout="IOHW")
    return relax.op.nn.relu(made)


CASES: dict[str, tuple[Build, tuple[int, ...]]] = {
    "matmul": (matmul, (45, 19)),
    "batch_matmul": (batch_matmul, (3, 21, 18)),
    "conv2d": (convolution(1, 20, 40, 3), (1, 13, 11, 20)),
    "conv2d_transpose": (transposed, (1, 9, 7, 20)),
    "image_conv2d": (convolution(1, 3, 20, 3, by_planes=True), (1, 3, 15, 18)),
    "depthwise_conv2d": (convolution(40, 1, 40, 3), (1, 9, 10, 40)),
    "grouped_conv2d": (convolution(10, 4, 40, 3), (1, 9, 10, 40)),
    "planar_window": (convolution(6, 1, 6, 3, layout="NCHW"), (1, 6, 20, 37)),
    "attention": (attention, (2, 150, 12)),
    "rolling_window": (expanded, (1, 13, 11, 12)),
    "conv_chain": (narrowed, (1, 13, 11, 12)),
}


FAMILIES = {template.name: template for template in TEMPLATES}
FAMILIES["grouped_conv2d"] = FAMILIES["depthwise_conv2d"]  # kernels of one family, by name
ELSEWHERE = {"recurrent", "stitch_stages", "fallback_loops"}
"""The first has its own file, the second cases below, and the last has one point."""


def test_every_template_has_a_case() -> None:
    assert set(CASES) == FAMILIES.keys() - ELSEWHERE


@pytest.mark.parametrize("kind", CASES)
def test_points_spread_over_the_space_are_right(kind: str) -> None:
    build, shape = CASES[kind]
    data = normal(shape, 0)
    (expected,) = run(build, [data], "llvm", 1, judge=always).outputs
    counts, tiles = set(), set()
    for step, threads in zip(range(MOST), itertools.cycle((1, 2, 3)), strict=False):
        sampled = Sampled(FAMILIES[kind], step / (MOST - 1))
        with changed(FAMILIES[kind].name, space=sampled):
            ran = run(build, [data], "llvm", threads, judge=always)
        np.testing.assert_allclose(ran.outputs[0], expected, rtol=1e-5, atol=2e-5)
        counts.add(sampled.points)
        tiles |= {kernel.made.tile for kernel in ran.kernels.values()}
    assert max(counts) > 10
    assert len(tiles) > MOST // 2


STITCHED: dict[str, tuple[Build, tuple[int, ...]]] = {
    "softmax": (lambda b, x: op.nn.softmax(op.multiply(x, x), -1), (37, 83)),
    "a sum over rows": (lambda b, x: op.sqrt(op.sum(op.abs(x), [0])), (21, 150)),
    "a map": (lambda b, x: op.tanh(op.add(x, op.multiply(x, x))), (3, 517)),
    "one long axis": (lambda b, x: op.add(x, relax.const(np.float32(1))), (1, 4099)),
    "a pool": (lambda b, x: op.nn.relu(op.nn.max_pool2d(x, 3, 2, layout="NHWC")), (1, 15, 13, 35)),
    "a transpose": (lambda b, x: op.add(op.permute_dims(x, [1, 0]), relax.const(np.float32(1))), (45, 67)),
    "a normalisation": (lambda b, x: op.divide(x, b.emit(op.mean(x, [0, 2], keepdims=True))), (5, 6, 41)),
}


@pytest.mark.parametrize("name", STITCHED)
def test_points_of_stitched_stages_are_right(name: str) -> None:
    build, shape = STITCHED[name]
    data = np.abs(normal(shape, 0)) + np.float32(0.5)
    func, machine = kernels.prim_func(build, [data]), context.resolve("llvm").compiler.machine
    template = stitch_stages.TEMPLATE
    usual = schedule_with((template,), func, machine, 2)
    (expected,) = kernels.run(usual, [data])
    tiles = set()
    for threads in (1, 2, 3):
        space = stitch_space(StageGroup.read(func), machine, threads)
        points = list(space)
        assert space.default in points
        assert all(isfinite(point.cycles) and point.cycles > 0 for point in points)
        for step in range(MOST // 3):
            point = points[step * (len(points) - 1) // (MOST // 3 - 1)]
            one = replace(template, space=lambda *_, point=point: Space(point, lambda: iter(())))
            made = schedule_with((one,), func, machine, threads)
            np.testing.assert_allclose(kernels.run(made, [data])[0], expected, rtol=1e-5, atol=2e-5)
            tiles.add(made.tile)
    assert usual.tile.endswith("1 threads")
    assert len(tiles) > MOST // 2


def test_the_default_of_stitched_stages_is_what_is_estimated_to_be_fast() -> None:
    machine = context.resolve("llvm").compiler.machine
    for rows in (1, 8, 200, 5000):
        func = kernels.prim_func(lambda b, x: op.nn.softmax(x, -1), [normal((rows, 100), 0)])
        space = stitch_space(StageGroup.read(func), machine, 2)
        assert space.default.tasks == (2 if rows >= 200 else 1)
        assert space.default.cycles <= 1.1 * min(point.cycles for point in space)
