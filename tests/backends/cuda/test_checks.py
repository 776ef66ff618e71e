"""Checks of values that only the run knows: what holds passes on as readers get it, what does not stops the kernel."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from backends.cuda.codegen.generate import generate_kernel
from backends.cuda.kernels.checks.emit import emit_check
from fusion.declined import Declined
from fusion.guards.kernel import guard_func
from fusion.guards.kinds import Guard, boxes_guard, divisor_guard, finite_guard, index_guard
from tests.backends.cpu.kernels.memory_bound import prim_func
from tests.backends.cuda.emulated import numbers
from tests.backends.cuda.emulator.emulate import WHY_NOT, EmulatedError, emulate

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

guard_of_indices = partial(index_guard, "the test")


def checked(guard: Guard, values: np.ndarray, kept: str, orders: tuple[int, ...] = (0, 1, 2, 3)) -> np.ndarray:
    """Return what readers get of the values; what is checked begins as -1.

    Raises:
        EmulatedError: One does not hold.
    """
    kernel = generate_kernel(emit_check(guard_func(guard, values.shape, str(values.dtype), kept)), "check", "sm_80")
    done = emulate(kernel, {"values": values, "checked": np.full(values.shape, -1, kept)}, orders)
    return done.arrays["checked"]


def test_random_indices_pass_in_all_sizes() -> None:
    seed = 2290
    random = np.random.default_rng(seed)
    for _ in range(6):
        sizes = [int(size) for size in random.integers(1, 50, random.integers(1, 4))]
        shape = (*(int(extent) for extent in random.integers(1, 40, random.integers(0, 3))), len(sizes))
        values = random.integers(np.negative(sizes), sizes, shape).astype(random.choice(["int32", "int64"]))
        found = checked(guard_of_indices(range(len(sizes)), sizes), values, "int64")
        np.testing.assert_array_equal(found, np.where(values < 0, values + sizes, values), err_msg=f"{seed} {shape}")


def test_one_index_that_is_outside_stops_the_kernel() -> None:
    seed = 2291
    random = np.random.default_rng(seed)
    guard = guard_of_indices([0], [40])
    for outside in (-41, 40, 2**31, -(2**63)):
        values = random.integers(-40, 40, 700)
        values[random.integers(0, 700)] = outside
        with pytest.raises(EmulatedError, match="stopped the kernel"):
            checked(guard, values, "int64")


def test_values_that_a_cpu_divides_among_threads_are_checked() -> None:
    values = np.random.default_rng(2292).integers(-9, 9, (2, 40_000))
    guard = guard_of_indices([0], [9])
    np.testing.assert_array_equal(checked(guard, values, "int32", orders=(3,)), values % 9)
    values[1, -1] = 9
    with pytest.raises(EmulatedError, match="stopped the kernel"):
        checked(guard, values, "int32", orders=(3,))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_coordinates_are_finite(wrong: float) -> None:
    boxes = np.concatenate([np.arange(3, dtype=np.float32)[:, None], numbers(3, 4)], 1)
    guard = boxes_guard("the test", 3)
    np.testing.assert_array_equal(checked(guard, boxes, "float32"), boxes)
    for place in (4, 5, 14):
        with pytest.raises(EmulatedError, match="stopped the kernel"):
            checked(guard, np.where(np.arange(15).reshape(3, 5) == place, np.float32(wrong), boxes), "float32")
    with pytest.raises(EmulatedError, match="stopped the kernel"):
        checked(finite_guard("the test"), np.array([1, wrong], np.float32), "float32")


def test_a_divisor_is_not_zero() -> None:
    divisors = np.array([3, -1, 7], np.int64)
    np.testing.assert_array_equal(checked(divisor_guard("the test"), divisors, "int64"), divisors)
    with pytest.raises(EmulatedError, match="stopped the kernel"):
        checked(divisor_guard("the test"), divisors * [1, 0, 1], "int64")


def test_what_checks_nothing_is_declined() -> None:
    with pytest.raises(Declined, match="does not come with its loops"):
        emit_check(prim_func(lambda b, x: x + x, [numbers(4)]))
    with pytest.raises(Declined, match="is empty"):
        emit_check(guard_func(divisor_guard("the test"), (0,), "int64", "int64"))
