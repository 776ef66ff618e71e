"""Transposes through shared memory: right in every order of threads, in full sectors, without conflicts of banks."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from backends.cuda.devices import A100
from backends.cuda.kernels.transposes.emit import emit_transpose
from backends.cuda.schedule import schedule
from fusion.declined import Declined
from tests.backends.cpu.kernels.memory_bound import Build, prim_func
from tests.backends.cuda import emulated
from tests.backends.cuda.emulated import numbers
from tests.backends.cuda.emulator.emulate import WHY_NOT

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

run = partial(emulated.run, emit_transpose)
CASES = [
    ((64, 96), (1, 0)), ((40, 33), (1, 0)), ((2, 64, 3, 32), (0, 2, 3, 1)), ((2, 24, 5, 7), (0, 2, 3, 1)),
    ((2, 9, 10, 16), (0, 3, 1, 2)), ((1, 40, 2, 9), (0, 2, 3, 1)), ((2, 3, 17, 33), (0, 2, 3, 1)),
    ((9, 70, 3), (2, 0, 1)), ((41, 4, 28), (0, 2, 1)), ((5, 34, 6), (0, 2, 1)), ((3, 7, 300), (0, 2, 1)),
    ((2, 37, 5, 15), (0, 2, 1, 3)), ((5, 12, 8, 7), (0, 2, 1, 3)), ((41, 6, 2, 5), (1, 0, 2, 3)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [(*case, dtype) for at, case in enumerate(CASES) for dtype in ("float32", ("float16", "int64")[at % 2])],
    ids=str,
)
def test_tensors_are_turned(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> None:
    x = (100 * numbers(*shape)).astype(dtype)
    done, counts = run(lambda b, x: op.permute_dims(x, list(axes)), x)
    np.testing.assert_array_equal(done, x.transpose(axes))
    assert counts.shared_passes < 2 * counts.shared_requests
    if all(extent % 32 == 0 for extent in (shape[axes[-1]], shape[-1])):
        assert (counts.sector_share, counts.worst_conflict) == (1.0, 1)


def test_random_orders_of_axes_are_right() -> None:
    """Of all sizes; what is declined has another family's loops."""
    seed = 2229
    random, turned = np.random.default_rng(seed), 0
    while turned < 8:
        rank = int(random.integers(2, 5))
        x = 100 * numbers(*random.integers(1, (97, 41, 17)[rank - 2], rank).tolist())
        x, axes = x.astype(random.choice(["float32", "float16", "int32"])), random.permutation(rank).tolist()
        try:
            done, _ = run(lambda b, x, axes=axes: op.abs(op.permute_dims(x, axes)), x)
        except Declined:
            continue
        np.testing.assert_array_equal(done, np.abs(x.transpose(axes)), err_msg=f"{seed} {x.shape} {axes} {x.dtype}")
        turned += 1


def test_what_is_elementwise_around_it_is_computed_in_the_kernel() -> None:
    """Of what is read as it lies, and of a second operand that is turned."""
    x, y, z, bias = numbers(48, 40), numbers(40, 48), numbers(48, 40), numbers(48)

    def build(b: relax.BlockBuilder, x: relax.Expr, y: relax.Expr, z: relax.Expr, bias: relax.Expr) -> relax.Expr:
        turned = op.permute_dims(op.nn.relu(op.add(x, op.multiply(z, z))))
        return op.add(op.multiply(turned, y), bias)

    done, counts = run(build, x, y, z, bias)
    np.testing.assert_allclose(done, np.maximum(x + z * z, 0).T * y + bias, rtol=1e-6, atol=1e-6)
    assert counts.sector_share > 0.95


@pytest.mark.parametrize(
    ("build", "shape", "reason"),
    [
        (lambda b, x: op.nn.relu(x), (40, 40), "nothing is read transposed"),
        (lambda b, x: op.permute_dims(x), (7, 3), "fewer than 8"),
        (lambda b, x: op.permute_dims(op.nn.pad(x, [0, 1, 2, 3])), (40, 40), "branches"),
        (lambda b, x: op.sum(x, -1), (40, 40), "a stage is a reduction"),
    ],
)
def test_what_it_does_not_compute_is_declined(build: Build, shape: tuple[int, ...], reason: str) -> None:
    with pytest.raises(Declined, match=reason):
        run(build, numbers(*shape))


def test_it_is_asked_before_elementwise_regions() -> None:
    func = prim_func(lambda b, x: op.permute_dims(x), [numbers(64, 96)])
    assert schedule(func, A100).template == "transposes"
