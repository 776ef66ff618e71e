"""Every point of the space of stitched stages is right, whatever the stages; the default is estimated to be fast."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import numpy as np
import pytest
from tvm import relax

from backends.cpu.kernels import stitch_stages
from backends.cpu.kernels.stitch_stages.plan import stitch_space
from backends.cpu.kernels.stitch_stages.read import read_stage_group
from backends.tensorir.space import Space
from fusion import context
from tests.backends.cpu.kernels import memory_bound as kernels
from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.stitch_stages.example import softmax
from tests.backends.cpu.kernels.templates import schedule_with
from tests.passes.modules import Build

op = relax.op
MOST = 9
"""Points of a space that are run, spread over it."""

STITCHED: dict[str, tuple[Build, tuple[int, ...]]] = {
    "softmax": (softmax, (37, 83)),
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
    made = []
    for threads in (1, 2, 3):
        space = stitch_space(read_stage_group(func), machine, threads)
        points = list(space)
        assert space.default in points
        assert all(isfinite(point.cycles) and point.cycles > 0 for point in points)
        for step in range(MOST // 3):
            point = points[step * (len(points) - 1) // (MOST // 3 - 1)]
            one = replace(template, space=lambda *_, point=point: Space(point, lambda: iter(())))
            made.append(schedule_with((one,), func, machine, threads))
    (expected,), *others = kernels.run_different([usual, *made], [data])
    for (found,) in others:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)
    assert usual.tile.endswith("1 threads")
    assert len({each.tile for each in made}) > MOST // 2


def test_the_default_of_stitched_stages_is_what_is_estimated_to_be_fast() -> None:
    machine = context.resolve("llvm").compiler.machine
    for rows in (1, 8, 200, 5000):
        func = kernels.prim_func(lambda b, x: op.nn.softmax(x, -1), [normal((rows, 100), 0)])
        space = stitch_space(read_stage_group(func), machine, 2)
        assert space.default.tasks == (2 if rows >= 200 else 1)
        assert space.default.cycles <= 1.1 * min(point.cycles for point in space)
