"""Weights are packed without numbers that are slow to multiply and immaterial."""

from __future__ import annotations

import numpy as np
import pytest

from backends.cpu.kernels.shared.lowering.packing import clear_subnormals, pack_matmul, packed_constant

SUBNORMAL = np.float32(1e-40)


def weights(largest: float, dtype: type = np.float32) -> np.ndarray:
    """Return many weights up to `largest`, of which two are subnormal, far behind each other."""
    made = np.linspace(-largest, largest, 90_000, dtype=dtype).reshape(300, 300)
    made[0, 1], made[299, 2] = np.finfo(dtype).tiny / 8, -np.finfo(dtype).tiny / 8
    return made


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_subnormal_weights_are_zero_beside_others(dtype: type) -> None:
    found, expected = weights(1.0, dtype), weights(1.0, dtype)
    expected[0, 1] = expected[299, 2] = 0
    clear_subnormals(found)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("beside", [1e-25, np.inf, np.nan])
def test_they_stay_where_no_weight_makes_them_immaterial(beside: float) -> None:
    found = weights(1e-25)
    found[5, 5] = beside
    expected = found.copy()
    clear_subnormals(found)
    np.testing.assert_array_equal(found, expected)


def test_those_of_narrow_numbers_stay() -> None:
    """2^-20 is subnormal in float16, and a weight as any other."""
    found = np.array([1.0, 2.0**-20], np.float16)
    clear_subnormals(found)
    assert found[1] == 2.0**-20


def test_weights_of_kernels_are_packed_so_and_those_of_the_model_stay() -> None:
    given = np.array([[1.0, SUBNORMAL]], np.float32)
    packed = packed_constant(pack_matmul, given, 16).value.numpy()
    assert packed.ravel().tolist() == [1.0, *[0.0] * 15]
    assert given[0, 1] == SUBNORMAL
