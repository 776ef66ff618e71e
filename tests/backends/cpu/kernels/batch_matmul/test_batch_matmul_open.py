"""Products of batches of which only a call knows the batch, the rows, the columns or the depth, against float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax

from fusion.symbolic.fit import Fit
from tests.backends.cpu.kernels.anchored import TARGETS, Epilogue, normal, one_kernel
from tests.backends.cpu.kernels.called import Called
from tests.symbolic.unified import unified
from tests.targets import AVX2, runs_here

PROBES = ({"b": 11, "n": 127}, {"b": 11, "n": 131}, {"b": 13, "n": 131})
SIZES = [(1, 1), (2, 2), (1, 7), (2, 15), (1, 16), (3, 17), (1, 33), (2, 40), (1, 101), (0, 3), (2, 0), (1, 531)]
Shape = tuple[int, ...]
CASES: dict[str, Callable[[int, int], tuple[Shape, Shape, tuple[str, ...]]]] = {
    "scores": lambda b, n: ((b, 2, n, 24), (b, 2, 24, n), ("scale",)),
    "values": lambda b, n: ((b, n, n), (b, n, 40), ()),
    "sums over the length": lambda b, n: ((b, 24, n), (b, n, 33), ("relu",)),
    "one row": lambda b, n: ((b, 3, 1, 16), (b, 3, 16, n), ("sigmoid",)),
    "one for all": lambda b, n: ((b, 1, n, 16), (1, 3, 16, 20), ("residual",)),
    "rows and columns": lambda b, n: ((2, b, 6), (1, 6, n), ()),
    "behind them": lambda b, n: ((2, b, 6), (2, 6, n), ("residual", "sigmoid")),
    "one column": lambda b, n: ((b, n, 6), (b, 6, 1), ()),
    "behind one column": lambda b, n: ((b, 2, n), (b, n, 1), ("residual", "sigmoid")),
    "one number": lambda b, n: ((b, 1, n), (b, n, 1), ()),
    "more columns": lambda b, n: ((n, 8), (b, 8, n + 3), ("residual", "sigmoid")),
}  # fmt: skip


def called(name: str, target: str = "llvm", threads: int = 1) -> Called:
    def built(b: int, n: int) -> object:
        left, right, steps = CASES[name](b, n)
        arrays = [normal(left, 0), normal(right, 1)]
        epilogue = Epilogue(steps, (arrays[0] @ arrays[1]).shape, 3)

        def build(builder: relax.BlockBuilder, x: relax.Var, y: relax.Var, *extra: relax.Var) -> relax.Expr:
            return epilogue.relax(builder, relax.op.matmul(x, y), extra)

        return one_kernel(build, [*arrays, *epilogue.arrays()])

    kernel = unified([built(**sizes) for sizes in PROBES], Fit(PROBES))
    return Called(kernel, list(range(len(kernel.params) - 1)), target, threads)


def check(name: str, kernel: Called, b: int, n: int) -> None:
    left, right, steps = CASES[name](b, n)
    arrays = [normal(left, b), normal(right, n)]
    product = arrays[0].astype("float64") @ arrays[1]
    epilogue = Epilogue(steps, product.shape, 3)
    (want,) = epilogue.numpy(product)
    made = kernel([*arrays, *epilogue.arrays()], want.shape)
    np.testing.assert_allclose(made, want, rtol=2e-5, atol=1e-5 * (1 + np.sqrt(left[-1])), err_msg=f"{b=} {n=}")


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_right_at_all_sizes(name: str) -> None:
    kernel = called(name)
    assert kernel.made.template == "batch_matmul"
    for sizes in SIZES:
        check(name, kernel, *sizes)


@pytest.mark.skipif(not runs_here(AVX2), reason="the CPU has no such vectors")
@pytest.mark.parametrize("name", ["scores", "sums over the length", "one for all", "one row"])
def test_narrower_vectors_and_threads(name: str) -> None:
    kernel = called(name, AVX2, 3)
    assert "T.parallel" in kernel.made.func.script()
    for sizes in (*SIZES, (2, 1501)):
        check(name, kernel, *sizes)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["rows and columns", "behind them"])
def test_tiles_of_all_heights_and_widths(name: str, target: str) -> None:
    kernel = called(name, target)
    for rows in (*range(1, 10), 17, 25, 50):
        for columns in (*range(1, 9), 15, 16, 17, 23, 24, 25, 32, 40, 41, 64, 72, 73, 100, 128, 137, 145):
            check(name, kernel, rows, columns)


def test_a_tensor_without_axes_behind_the_product() -> None:
    def built(b: int, n: int) -> object:
        def build(builder: relax.BlockBuilder, x: relax.Var, y: relax.Var, number: relax.Var) -> relax.Expr:
            return relax.op.multiply(builder.emit(relax.op.matmul(x, y)), number)

        return one_kernel(build, [normal((b, n, 6), 0), normal((b, 6, n), 1), np.array(3, np.float32)])

    kernel = unified([built(**sizes) for sizes in PROBES], Fit(PROBES))
    made = Called(kernel, [0, 1, 2], "llvm", 1)
    assert made.made.template == "batch_matmul"
    left, right = normal((2, 19, 6), 2), normal((2, 6, 19), 3)
    found = made([left, right, np.array(3, np.float32)], (2, 19, 19))
    np.testing.assert_allclose(found, 3 * (left @ right), rtol=1e-4, atol=1e-5)
