"""Every point of every template's space is right, and has an estimate; the default is one of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import pytest

from backends.cpu.kernels.priority import TEMPLATES
from backends.cpu.kernels.template import Template
from backends.cpu.machine import Machine
from backends.tensorir.space import Space
from fusion import context
from tests.backends.cpu.kernels.anchored import always, build_grouped, to_schedule
from tests.backends.cpu.kernels.examples import Example, examples_of
from tests.backends.cpu.kernels.templates import changed

MOST = 8
"""Points of a space that are run, spread over it."""


@dataclass
class Sampled:
    """The space of a template with another default: the point at `share` of the way through it.

    Attributes:
        points: How many there are; 0 where it was not asked for, or they are not what they should be.
    """

    template: Template[Any, Any]
    share: float
    has_estimates: bool
    points: int = 0

    def __call__(self, roles: Any, machine: Machine, threads: int) -> Space[Any]:
        space = self.template.space(roles, machine, threads)
        points = list(space)
        assert space.default in points
        assert all(isfinite(point.cycles) and (point.cycles > 0) == self.has_estimates for point in points)
        self.points = len(points)
        return Space(points[int(self.share * (len(points) - 1))], space.every)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_points_spread_over_the_space_are_right(template: Template[Any, Any]) -> None:
    for example in examples_of(template):
        if isinstance(example, Example):
            points_are_right(template, example)


def points_are_right(template: Template[Any, Any], example: Example) -> None:
    """Hold results of points to those of the default; kernels that the example has beside stay as they are."""
    data = example.data()
    compilers = [context.resolve("llvm", threads=threads).compiler for threads in (1, 2, 3)]
    mod = to_schedule(example.build, [data], always, compilers[0].machine.vector_lanes)
    (expected,) = build_grouped(mod, compilers[0])([data]).outputs
    counts, tiles = set(), set()
    for step, compiler in zip(range(MOST), itertools.cycle(compilers), strict=False):
        sampled = Sampled(template, step / (MOST - 1), example.has_estimates)
        with changed(template.name, space=sampled):
            ran = build_grouped(mod, compiler, optimised=False)([data])
        np.testing.assert_allclose(ran.outputs[0], expected, rtol=1e-5, atol=2e-5)
        counts.add(sampled.points)
        tiles |= {kernel.made.tile for kernel in ran.kernels.values()}
    assert all(counts), "the space is not asked for, or fails"
    assert len(tiles) >= min(max(counts), MOST // 2 + 1)
