"""Quotients and remainders of integers by one known number, which kernels have in their code."""

from __future__ import annotations

import numpy as np
import pytest

import fusion
from tests.frontends.narrow.networks import Network

DIVISORS = (1, 2, 7, 16, -3, 100)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_by_a_known_integer(dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(limits.min, limits.max, (8, 40), dtype=dtype, endpoint=True)
    x[0, :3] = limits.min, limits.max, 0
    net = Network()
    name, results, expected = net.input(x.shape, dtype), [], []
    wide = x.astype(object)
    for divisor in (each for each in DIVISORS if each >= limits.min):
        known = net.constant(np.array(divisor, dtype))
        quotient = np.abs(wide) // abs(divisor) * np.where((wide < 0) == (divisor < 0), 1, -1)
        results += [net.op("Div", name, known), net.op("Mod", name, known), net.op("Mod", name, known, fmod=1)]
        expected += [quotient, wide % divisor, wide - quotient * divisor]
    outputs = fusion.compile(net.model(*results), threads=1, cache=False, database=False)(x)
    for got, want in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(got.astype(object), want)
