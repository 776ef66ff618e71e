"""Rows times a constant matrix, against float64."""

from __future__ import annotations

from math import prod

from hypothesis import assume, given
from hypothesis import strategies as st
from tvm import relax

from tests.backends.cpu.kernels.anchored import TARGETS, Epilogue, check, normal, run
from tests.backends.cpu.kernels.drawn import EXAMPLES, epilogues, extents, seeds, targets, threads


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


def test_one_row_and_one_channel() -> None:
    for rows, depth, channels in ((1, 65, 100), (100, 65, 1), (1, 1, 1)):
        data, weight = normal((rows, depth), 0), normal((depth, channels), 1)
        for target in TARGETS:
            ran = run(lambda b, x, w=weight: relax.op.matmul(x, relax.const(w)), [data], target, 2)
            check(ran, [data.astype("float64") @ weight])
