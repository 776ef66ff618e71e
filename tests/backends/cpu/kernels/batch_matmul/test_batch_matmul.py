"""Products of batches, against float64."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from tests.backends.cpu.kernels.anchored import Epilogue, check, normal, run
from tests.backends.cpu.kernels.drawn import EXAMPLES, epilogues, extents, seeds, targets, threads


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
