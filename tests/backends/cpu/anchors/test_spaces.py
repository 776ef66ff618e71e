"""Every point of every template's space is right, and has an estimate; the default is one of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import isfinite
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tvm import relax, tirx

from backends.cpu import schedule_kernels
from backends.cpu.anchors.roles import Roles
from backends.cpu.schedule_kernels import ANCHORED, Anchored
from backends.cpu.templates.result import Scheduled
from backends.cpu.templates.space import Space
from fusion.context import Machine
from tests.backends.cpu.anchors.anchored import normal, run
from tests.passes.modules import Build

MOST = 12
"""Points of a space that are run, spread over it."""


@dataclass
class Sampled:
    """A template whose default is another point of its space: the one at `share` of the way through it."""

    template: Anchored
    share: float
    name: str = ""
    points: int = 0

    def space(self, roles: Roles, machine: Machine, threads: int) -> Space[Any]:
        space = self.template.space(roles, machine, threads)
        points = list(space)
        self.points = len(points)
        assert space.default in points
        assert all(isfinite(point.cycles) and point.cycles > 0 for point in points)
        return Space(points[int(self.share * (len(points) - 1))], space.every)

    def emit(self, func: tirx.PrimFunc, roles: Roles, machine: Machine, point: Any) -> Scheduled:
        return self.template.emit(func, roles, machine, point)


def matmul(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return relax.op.nn.relu(relax.op.matmul(x, relax.const(normal((19, 37), 1))))


def batch_matmul(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return relax.op.matmul(x, b.emit(relax.op.permute_dims(x, [0, 2, 1])))


def convolution(
    groups: int, depth: int, out: int, kernel: int, *, by_planes: bool = False, layout: str = "NHWC"
) -> Build:
    weight = normal((out, depth, kernel, kernel), 1) / np.float32(kernel * depth**0.5)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        image = b.emit(relax.op.permute_dims(x, [0, 2, 3, 1])) if by_planes else x
        made = relax.op.nn.conv2d(image, relax.const(weight), 1, kernel // 2, groups=groups, data_layout=layout)
        return relax.op.nn.relu(made)

    return build


CASES: dict[str, tuple[Build, tuple[int, ...]]] = {
    "matmul": (matmul, (45, 19)),
    "batch_matmul": (batch_matmul, (3, 21, 18)),
    "conv2d": (convolution(1, 20, 40, 3), (1, 13, 11, 20)),
    "image_conv2d": (convolution(1, 3, 20, 3, by_planes=True), (1, 3, 15, 18)),
    "depthwise_conv2d": (convolution(40, 1, 40, 3), (1, 9, 10, 40)),
    "planar_window": (convolution(6, 1, 6, 3, layout="NCHW"), (1, 6, 20, 37)),
}


def test_every_template_has_a_case() -> None:
    assert set(CASES) == set(ANCHORED)


@pytest.mark.parametrize("kind", CASES)
def test_points_spread_over_the_space_are_right(kind: str) -> None:
    build, shape = CASES[kind]
    data = normal(shape, 0)
    (expected,) = run(build, [data], "llvm", 1).outputs
    counts, tiles = set(), set()
    for step, threads in zip(range(MOST), itertools.cycle((1, 2, 3)), strict=False):
        sampled = Sampled(ANCHORED[kind], step / (MOST - 1), kind)
        with mock.patch.dict(schedule_kernels.ANCHORED, {kind: sampled}):
            ran = run(build, [data], "llvm", threads)
        np.testing.assert_allclose(ran.outputs[0], expected, rtol=1e-5, atol=2e-5)
        counts.add(sampled.points)
        tiles |= {kernel.made.tile for kernel in ran.kernels.values()}
    assert max(counts) > 10
    assert len(tiles) > MOST // 2
