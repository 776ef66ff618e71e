"""Sums, differences and products of integers that leave their type, before what takes it that they do not."""

from __future__ import annotations

import numpy as np
import pytest

import fusion
from tests.frontends.narrow.networks import Network

DTYPES = ("int32", "int64", "uint8", "uint16", "uint32", "uint64")


def values(dtype: str, seed: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    drawn = np.random.default_rng(seed).integers(limits.min, limits.max, (8, 40), dtype=dtype, endpoint=True)
    drawn[0, :4] = limits.min, limits.max, 0, limits.max // 2 + 1
    return drawn


def quotient(dividend: np.ndarray, divisor: int) -> np.ndarray:
    """Return what is left of a quotient that is cut off at the point."""
    return dividend // divisor + ((dividend < 0) & (dividend % divisor != 0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_before_quotients_and_comparisons(dtype: str) -> None:
    x, y = values(dtype, 0), values(dtype, 1)
    net = Network()
    a, b = net.input(x.shape, dtype), net.input(y.shape, dtype)
    one, two, three, six = (np.array(value, dtype) for value in (1, 2, 3, 6))
    known = {int(each): net.constant(each) for each in (one, two, three, six)}
    product, twice, more, less = x * six, x + x, x + one, x - three
    results = {
        net.op("Div", net.op("Mul", a, known[6]), known[3]): quotient(product, 3),
        net.op("Mod", net.op("Mul", known[6], a), known[3]): product % three,
        net.op("Div", net.op("Add", a, a), known[2]): quotient(twice, 2),
        net.op("Greater", net.op("Add", a, known[1]), a): more > x,
        net.op("Less", net.op("Sub", a, known[3]), a): less < x,
        net.op("Greater", net.op("Mul", a, a), known[1]): x * x > one,
        net.op("Equal", net.op("Div", net.op("Mul", a, b), known[6]), known[1]): quotient(x * y, 6) == one,
        net.op("Div", net.op("Sub", b, a), known[2]): quotient(y - x, 2),
    }
    outputs = fusion.compile(net.model(*results), threads=1, cache=False, database=False, strict=True)(x, y)
    for name, got, want in zip(results, outputs, results.values(), strict=True):
        np.testing.assert_array_equal(got, want, name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_alone(dtype: str) -> None:
    x, y = values(dtype, 0), values(dtype, 1)[:, :1]
    net = Network()
    a, b = net.input(x.shape, dtype), net.input(y.shape, dtype)
    zero, large = np.array(0, dtype), np.array(np.iinfo(dtype).max - 1, dtype)
    known = net.constant(zero), net.constant(large)
    results = {
        net.op("Sub", known[0], a): zero - x,
        net.op("Mul", a, known[1]): x * large,
        net.op("Add", net.op("Mul", a, b), known[1]): x * y + large,
    }
    if dtype.startswith("int"):
        results[net.op("Neg", a)] = -x
    outputs = fusion.compile(net.model(*results), threads=1, cache=False, database=False, strict=True)(x, y)
    for name, got, want in zip(results, outputs, results.values(), strict=True):
        np.testing.assert_array_equal(got, want, name)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype.startswith("u")])
def test_no_unsigned_number_is_below_0(dtype: str) -> None:
    """TVM ended the process of such a condition, whose side is let-bound."""
    x = values(dtype, 0)
    net = Network()
    a = net.input(x.shape, dtype)
    zero, three, ones = (net.constant(np.full(shape, value, dtype)) for shape, value in (((), 0), ((), 3), ((40,), 1)))
    scaled = net.op("Mul", a, three)
    conditions = {
        net.op("Less", scaled, zero): False,
        net.op("GreaterOrEqual", scaled, zero): True,
        net.op("Greater", zero, scaled): False,
        net.op("LessOrEqual", zero, scaled): True,
    }
    results = [net.op("Where", each, a, ones) for each in conditions]
    outputs = fusion.compile(net.model(*results), threads=1, cache=False, database=False, strict=True)(x)
    for got, is_true in zip(outputs, conditions.values(), strict=True):
        np.testing.assert_array_equal(got, x if is_true else np.ones_like(x))
