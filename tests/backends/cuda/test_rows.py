"""Kernels of rows: right against float64 in every order of threads, whatever their size; each element is read once."""

from __future__ import annotations

from functools import partial

import ml_dtypes  # noqa: F401, so that NumPy knows bfloat16
import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from backends.cuda.devices import A100
from backends.cuda.kernels.rows.emit import emit_rows
from fusion.declined import Declined
from tests.backends.cpu.kernels.memory_bound import Build
from tests.backends.cuda import emulated
from tests.backends.cuda.emulated import numbers
from tests.backends.cuda.emulator.emulate import WHY_NOT

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


run = partial(emulated.run, partial(emit_rows, device=A100))


def softmax(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """A softmax with something before it and something behind it."""
    return op.negative(op.nn.softmax(op.multiply(x, relax.const(2, x.ty.dtype)), -1))


def softmax_in_float64(x: np.ndarray) -> np.ndarray:
    x = 2 * x.astype(np.float64)
    powers = np.exp(x - x.max(-1, keepdims=True))
    return -powers / powers.sum(-1, keepdims=True)


def layer_norm(b: relax.BlockBuilder, x: relax.Expr, y: relax.Expr, *parts: relax.Expr) -> relax.Expr:
    return op.nn.relu(op.nn.layer_norm(op.add(x, y), *parts, -1))


def layer_norm_in_float64(x: np.ndarray, y: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    x, y, gamma, beta = (each.astype(np.float64) for each in (x, y, gamma, beta))
    off = x + y - (x + y).mean(-1, keepdims=True)
    return np.maximum(off / np.sqrt((off * off).mean(-1, keepdims=True) + 1e-5) * gamma + beta, 0)


SHAPES = [
    (1, 1), (1, 7), (5, 64), (33, 12), (17, 147), (2, 3, 38), (3, 1000), (2, 1024), (2, 1023), (3, 4096), (1, 5001),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_softmax_is_what_float64_says(shape: tuple[int, ...]) -> None:
    x = numbers(*shape)
    np.testing.assert_allclose(run(softmax, x)[0], softmax_in_float64(x), rtol=3e-6)


@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
def test_a_layer_norm_is_what_float64_says(shape: tuple[int, ...]) -> None:
    arrays = numbers(*shape), numbers(*shape) + 1, numbers(shape[-1]), numbers(shape[-1]) - 1
    np.testing.assert_allclose(run(layer_norm, *arrays)[0], layer_norm_in_float64(*arrays), rtol=1e-5, atol=1e-5)


def test_random_shapes_are_what_float64_says() -> None:
    seed = 2225
    random = np.random.default_rng(seed)
    for _ in range(4):
        leading = random.integers(1, 7, random.integers(1, 3))
        shape = (*(int(extent) for extent in leading), int(random.integers(2, 300)))
        x = numbers(*shape)
        np.testing.assert_allclose(run(softmax, x)[0], softmax_in_float64(x), rtol=3e-6, err_msg=f"{seed} {shape}")


def test_an_rms_norm_and_rows_of_two_axes_are_right() -> None:
    x, gamma = numbers(6, 5, 8), numbers(5, 8)
    done = run(lambda b, x, gamma: op.nn.rms_norm(x, gamma, [-2, -1]), x, gamma)[0]
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide * wide).mean((1, 2), keepdims=True) + 1e-5) * gamma
    np.testing.assert_allclose(done, expected, rtol=3e-6)


@pytest.mark.parametrize("shape", [(16, 96), (4, 1024), (2, 6144)], ids=str)
def test_each_element_is_read_once_in_full_sectors_and_wide_accesses(shape: tuple[int, ...]) -> None:
    x = numbers(*shape)
    counts = run(softmax, x)[1]
    assert counts.load_bytes == counts.store_bytes == x.nbytes
    assert counts.sector_share == 1.0
    assert counts.wide_bytes == 2 * x.nbytes
    assert (counts.barriers == 0) == (shape[-1] <= 1024)


def test_rows_that_are_not_aligned_are_read_once_too() -> None:
    x, y, gamma, beta = numbers(16, 1023), numbers(16, 1023), numbers(1023), numbers(1023)
    counts = run(layer_norm, x, y, gamma, beta)[1]
    assert counts.load_bytes == 2 * x.nbytes + 2 * (gamma.nbytes + beta.nbytes)  # once for a block of eight rows
    assert counts.store_bytes == x.nbytes
    assert counts.wide_bytes > 0.99 * (counts.load_bytes + counts.store_bytes)


@pytest.mark.parametrize("shape", [(70, 3), (32, 64), (17, 197), (2, 3, 1500), (3, 5001)], ids=str)
def test_a_number_of_each_row_may_be_an_output(shape: tuple[int, ...]) -> None:
    x = numbers(*shape).astype(np.float16)
    wide = x.astype(np.float64)
    done, counts = run(lambda b, x: op.sqrt(op.mean(op.multiply(x, x), -1)), x)
    np.testing.assert_allclose(done.astype(np.float64), np.sqrt((wide * wide).mean(-1)), rtol=2**-10)
    # The access that begins a row may bring the end of the row before.
    assert x.nbytes <= counts.load_bytes < x.nbytes + 16 * done.size
    np.testing.assert_array_equal(run(lambda b, x: op.max(x, -1), x)[0], x.max(-1))


@pytest.mark.parametrize(("dtype", "width"), [("float32", 128), ("float16", 128), ("float32", 49)])
def test_rows_of_a_table_are_looked_up_side_by_side(dtype: str, width: int) -> None:
    """As embeddings with the layer norm behind them are."""
    table, places = numbers(50, width).astype(dtype), numbers(24, width).astype(dtype)
    gamma, beta = numbers(width).astype(dtype), (numbers(width) - 1).astype(dtype)
    rows = np.random.default_rng(2293).integers(0, 50, 24)

    def build(b: relax.BlockBuilder, table: relax.Expr, rows: relax.Expr, *rest: relax.Expr) -> relax.Expr:
        return layer_norm(b, op.take(table, rows, 0), *rest)

    done, counts = run(build, table, rows, places, gamma, beta)
    expected = layer_norm_in_float64(table[rows], places, gamma, beta)
    tolerance = {"float32": 1e-5, "float16": 2**-9}[dtype]
    np.testing.assert_allclose(done.astype(np.float64), expected, rtol=tolerance, atol=tolerance)
    assert width == 49 or counts.sector_share > 0.9  # an index is a quarter of a sector


def test_rows_of_one_element_are_stored() -> None:
    x = numbers(5, 1)
    done = run(lambda b, x: op.nn.relu(op.sum(x, -1)), x)[0]
    np.testing.assert_array_equal(done, np.maximum(x[:, 0], 0))


def test_lanes_without_a_row_store_nothing() -> None:
    x = numbers(9, 64)
    assert run(softmax, x)[1].store_bytes == x.nbytes


def test_nan_passes_in_its_row_alone_and_so_does_infinity() -> None:
    x = numbers(4, 40)
    x[0, 3], x[1, 39], x[2, :5] = np.nan, np.inf, -np.inf
    done = run(softmax, x)[0]
    assert np.isnan(done[:2]).all()
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(done[2:], softmax_in_float64(x)[2:], rtol=3e-6)
    largest = run(lambda b, x: op.subtract(x, op.max(x, -1, keepdims=True)), x[[0, 3]])[0]
    assert np.isnan(largest[0]).all()
    np.testing.assert_array_equal(largest[1], x[3] - x[3].max())


@pytest.mark.parametrize(("dtype", "epsilon"), [("float16", 2**-11), ("bfloat16", 2**-8)])
@pytest.mark.parametrize("shape", [(4, 256), (5, 34)], ids=str)
def test_narrow_types_are_rounded_once(dtype: str, epsilon: float, shape: tuple[int, ...]) -> None:
    x = numbers(*shape).astype(np.dtype(dtype))
    done, counts = run(softmax, x)
    expected = softmax_in_float64(x)
    np.testing.assert_allclose(done.astype(np.float64), expected, rtol=epsilon * 1.01, atol=2**-25)
    if shape[0] % 4 == 0:  # a warp a row, four a block: none is without a row
        assert counts.load_bytes == counts.store_bytes == x.nbytes
    scaled = run(lambda b, x: op.multiply(x, op.max(x, -1, keepdims=True)), x)[0].astype(np.float64)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(scaled, wide * wide.max(-1, keepdims=True), rtol=epsilon * 1.01, atol=2**-25)


def test_two_warps_that_share_a_row_are_a_block() -> None:
    x = numbers(3, 1032).astype(np.float16)
    done = run(lambda b, x: op.nn.softmax(x, -1), x)[0]
    expected = softmax_in_float64(x / 2)
    np.testing.assert_allclose(done.astype(np.float64), -expected, rtol=2**-11 * 1.01, atol=2**-25)


def gathered(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    powers = op.exp(x)
    return op.divide(op.add(powers, op.flip(powers, -1)), op.sum(powers, -1, keepdims=True))


@pytest.mark.parametrize(
    ("build", "shape", "reason"),
    [
        (lambda b, x: op.nn.relu(x), (4, 8), "no stage is a reduction"),
        (lambda b, x: op.sum(x, 0), (4, 8), "neighbours of a row do not lie next to each other"),
        (lambda b, x: op.prod(x, -1, keepdims=True), (4, 8), "something else than"),
        (lambda b, x: op.nn.softmax(x, -1), (1, 40_000), "too long for a block"),
        (lambda b, x: op.nn.softmax(x, 0), (4, 8), "reads another row|other rows"),
        (lambda b, x: op.nn.softmax(op.astype(x, "float64"), -1), (4, 8), "it computes in float64"),
        (gathered, (4, 7), "is read at another column"),
    ],
)
def test_what_it_does_not_compute_is_declined(build: Build, shape: tuple[int, ...], reason: str) -> None:
    with pytest.raises(Declined, match=reason):
        run(build, numbers(*shape))
