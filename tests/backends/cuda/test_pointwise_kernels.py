"""Elementwise kernels: right against float64 in every order of threads, whatever their size; accesses are full."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import ml_dtypes  # noqa: F401, so that NumPy knows bfloat16
import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op

from backends.cuda.codegen.device_code import generate_kernels
from backends.cuda.devices import A100
from backends.cuda.kernels.pointwise.emit import emit_pointwise
from backends.cuda.schedule import schedule
from backends.tensorir.stages import shape_of, substitute
from fusion.declined import Declined
from tests.backends.cpu.kernels.memory_bound import Build, prim_func
from tests.backends.cuda import emulated
from tests.backends.cuda.emulated import numbers
from tests.backends.cuda.emulator.emulate import WHY_NOT
from tests.backends.cuda.planned import run_kernels

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


run = partial(emulated.run, emit_pointwise)


def gated(b: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    return op.multiply(op.sigmoid(x), op.add(op.nn.relu(y), relax.const(1.0)))


def gated_in_float64(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = x.astype(np.float64), y.astype(np.float64)
    return (np.maximum(y, 0) + 1) / (1 + np.exp(-x))


@pytest.mark.parametrize("shape", [(1,), (3,), (1024,), (1025,), (7, 147), (2, 3, 5, 7), (4, 1031)])
def test_all_sizes_are_what_float64_says(shape: tuple[int, ...]) -> None:
    x, y = numbers(*shape), numbers(*shape) - 1
    np.testing.assert_allclose(run(gated, x, y)[0], gated_in_float64(x, y), rtol=1e-6, atol=1e-7)


def test_random_shapes_are_what_float64_says() -> None:
    seed = 2224
    random = np.random.default_rng(seed)
    for _ in range(4):
        shape = tuple(int(extent) for extent in random.integers(1, 23, random.integers(1, 5)))
        x, y = numbers(*shape), numbers(*shape)
        expected = gated_in_float64(x, y)
        np.testing.assert_allclose(run(gated, x, y)[0], expected, rtol=1e-6, atol=1e-7, err_msg=f"{seed} {shape}")


def test_all_bytes_are_of_full_sectors_and_wide_accesses() -> None:
    counts = run(gated, numbers(4, 1024), numbers(4, 1024))[1]
    assert counts.sector_share == 1.0
    assert counts.wide_bytes == counts.load_bytes + counts.store_bytes == 3 * 4 * 4096


@pytest.mark.parametrize("shape", [(8, 64), (2, 8, 7, 7)])
def test_what_is_broadcast_is_read_where_it_lies(shape: tuple[int, ...]) -> None:
    x, bias = numbers(*shape), numbers(*shape[1:2], *(1 for _ in shape[2:]))
    done, counts = run(lambda b, x, bias: op.nn.relu(op.add(x, bias)), x, bias)
    np.testing.assert_array_equal(done, np.maximum(x + bias, 0))
    assert counts.wide_bytes >= 2 * x.nbytes


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda b, x: op.nn.relu(x), lambda x: np.maximum(x, 0)),
        (lambda b, x: op.clip(x, -1, 1), lambda x: np.clip(x, -1, 1)),
        (lambda b, x: op.maximum(x, op.negative(x)), lambda x: np.maximum(x, -x)),
        (lambda b, x: op.minimum(op.add(x, x), x), lambda x: np.minimum(x + x, x)),
    ],
)
def test_nan_and_infinity_pass(build: Build, expected: Callable[[np.ndarray], np.ndarray]) -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.5, 0.5, 0.0, 3.0], np.float32)
    np.testing.assert_array_equal(run(build, x)[0], expected(x))


def test_a_transpose_and_a_padding_are_right() -> None:
    x = numbers(6, 10)
    np.testing.assert_array_equal(run(lambda b, x: op.negative(op.permute_dims(x)), x)[0], -x.T)
    padded = run(lambda b, x: op.nn.pad(x, [0, 1, 2, 3]), x)[0]
    np.testing.assert_array_equal(padded, np.pad(x, [(0, 1), (2, 3)]))


def test_results_of_one_name_are_stored_apart() -> None:
    x = numbers(2, 12)
    func = prim_func(lambda b, x: op.split(x, 3, 1), [x])
    alike = {param: tirx.decl_buffer(shape_of(param), "float32", "part") for param in func.params[1:]}
    func = tirx.PrimFunc([func.params[0], *alike.values()], substitute(func.body, alike), func.ret_type, func.attrs)
    parts = [np.full((2, 4), np.nan, np.float32) for _ in func.params[1:]]
    run_kernels(generate_kernels("kernel", schedule(func, A100).func, "sm_80"), [x, *parts], (3,))
    np.testing.assert_array_equal(np.concatenate(parts, 1), x)


def test_gelu_keeps_its_digits() -> None:
    x = np.linspace(-6, 6, 301).astype(np.float32)
    expected = [float(each) / 2 * math.erfc(-float(each) / math.sqrt(2)) for each in x]
    # What x is rounded to before erfc counts x^2 times: 36 eps at the end.
    np.testing.assert_allclose(run(lambda b, x: op.nn.gelu(x), x)[0], expected, rtol=4e-6)


@pytest.mark.parametrize(("dtype", "epsilon"), [("float16", 2**-11), ("bfloat16", 2**-8)])
@pytest.mark.parametrize("shape", [(2048,), (5, 13)])
def test_narrow_types_are_rounded_once(dtype: str, epsilon: float, shape: tuple[int, ...]) -> None:
    x, y = (each.astype(np.dtype(dtype)) for each in (numbers(*shape), 1 - 2 * numbers(*shape)))
    done, counts = run(lambda b, x, y: op.multiply(op.sigmoid(x), op.add(y, op.multiply(x, y))), x, y)
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    expected = (wide_y + wide_x * wide_y) / (1 + np.exp(-wide_x))
    np.testing.assert_allclose(done.astype(np.float64), expected, rtol=epsilon * 1.001, atol=1e-7)
    assert counts.wide_bytes == (3 * x.nbytes if shape == (2048,) else 3 * 64 * 2)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda b, x: op.sum(x, -1), "a stage is a reduction"),
        (lambda b, x: op.astype(x, "uint16"), "it computes in uint16"),
    ],
)
def test_what_it_does_not_compute_is_declined(build: Build, reason: str) -> None:
    with pytest.raises(Declined, match=reason):
        run(build, numbers(4, 8))


def test_booleans_and_integers_are_computed_too() -> None:
    x, rows = numbers(6, 8), np.array([5, 0, 3], np.int64)
    np.testing.assert_array_equal(run(lambda b, x: op.greater(x, relax.const(0.0)), x)[0], x > 0)
    whole = np.random.default_rng(2233).integers(-99, 99, (7, 9)).astype(np.int64)
    np.testing.assert_array_equal(run(lambda b, x: op.add(x, x), whole)[0], 2 * whole)
    short = whole.astype(np.int16) * 300
    np.testing.assert_array_equal(run(lambda b, x: op.add(x, x), short)[0], 2 * short)
    np.testing.assert_array_equal(run(lambda b, x: op.astype(op.astype(x, "float32"), "int16"), short)[0], short)
    np.testing.assert_array_equal(run(lambda b, x, rows: op.take(x, rows, 0), x, rows)[0], x[rows])


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_integers_wrap(dtype: str) -> None:
    limits = np.iinfo(dtype)
    drawn = np.random.default_rng(0).integers(limits.min, limits.max, (2, 8, 40), dtype=dtype, endpoint=True)
    three, six, most = (np.array(value, dtype) for value in (3, 6, limits.max))

    def wrapping(b: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        known = [relax.const(value, dtype) for value in (three, six, most)]
        return op.floor_mod(op.add(op.multiply(x, known[1]), op.subtract(y, known[2])), known[0])

    x, y = drawn
    np.testing.assert_array_equal(run(wrapping, x, y)[0], (x * six + (y - most)) % three)


def test_float64_keeps_its_digits() -> None:
    x = np.append(numbers(40), [math.nan, math.inf, -math.inf, 3e9, -1e19]).astype(np.float64)

    def small(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        scaled = op.multiply(op.exp(op.tanh(x)), relax.const(1e-20 / 3, "float64"))
        return op.where(op.greater(x, relax.const(2.0**31, "float64")), relax.const(-math.inf, "float64"), scaled)

    expected = np.where(x > 2.0**31, -math.inf, np.exp(np.tanh(x)) * (1e-20 / 3))
    np.testing.assert_allclose(run(small, x)[0], expected, rtol=1e-15)
    whole = {dtype: run(lambda b, x: op.astype(x, dtype), x)[0] for dtype in ("int32", "int64")}  # noqa: B023
    fits = np.abs(x) < 2.0**31
    for dtype, found in whole.items():
        np.testing.assert_array_equal(found[fits], x[fits].astype(dtype))
        assert set(found[[40, 41, 42, 44]]) == {np.iinfo(dtype).min}
