"""Winograd's transforms in NumPy, and when the cost model takes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from backends.cpu.kernels.shared.convolution.winograd_plan import WinogradShape, plan_winograd, winograd_plans
from backends.cpu.kernels.shared.convolution.winograd_transform import F2, F4, Transform, square
from backends.cpu.machine import Machine

MACHINE = Machine(vector_lanes=16, vector_registers=32, l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20)


def winograd(transform: Transform, d: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Return the tiles [m, m, tiles, O] of inputs [m + 2, m + 2, tiles, I] under weights [3, 3, I, O], in d's dtype."""
    size, depth = transform.size, d.shape[-1]
    weights = transform.pack(g[None, None])[0].astype(d.dtype).reshape(size, size, depth, -1)
    inputs = np.array(square(transform.data, list(d), lambda value: value))
    products = np.einsum("ijtc,ijco->ijto", inputs, weights)
    return np.array(square(transform.result, list(products), lambda value: value))


def direct(d: np.ndarray, g: np.ndarray, tile: int) -> np.ndarray:
    return sum(np.einsum("ijtc,co->ijto", d[i : i + tile, j : j + tile], g[i, j]) for i in range(3) for j in range(3))


def data(transform: Transform, depth: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((transform.size, transform.size, 40, depth)), rng.standard_normal((3, 3, depth, 8))


@pytest.mark.parametrize("transform", [F2, F4])
def test_the_transforms_compute_the_convolution(transform: Transform) -> None:
    d, g = data(transform, 5)
    exact = direct(d, g, transform.tile)
    # The packed weights are float32.
    np.testing.assert_allclose(winograd(transform, d, g), exact, rtol=0, atol=1e-6 * np.abs(exact).max())


@pytest.mark.parametrize("transform", [F2, F4])
def test_a_run_transforms_weights_as_compiling_does(transform: Transform) -> None:
    _, g = data(transform, 5)
    made = np.array(square(transform.weights, list(g), lambda value: value))
    packed = transform.pack(g[None, None])[0].reshape(made.shape)
    np.testing.assert_allclose(made, packed, rtol=1e-6, atol=1e-6)


def test_small_images_do_not_pay_for_weights_that_the_run_transforms() -> None:
    """512 x 512 weights over 4x4 pixels: the transformed ones have 9 or 36 floats for each of 9."""
    shape = WinogradShape(1, 4, 4, 512, 4, 4, 512, 1, 1, 16)
    known, given = (plan_winograd(each, MACHINE, 2) for each in (shape, replace(shape, is_known=False)))
    assert known is not None
    assert given is not None
    assert given.cycles > 1.5 * known.cycles


def test_many_blocks_cost_less_where_weights_stay_in_l2() -> None:
    """Those of 128 x 128 channels have 2.25 MiB: read from memory for each block, and once where they stay."""
    shape, big = WinogradShape(1, 56, 56, 128, 56, 56, 128, 1, 1, 16), replace(MACHINE, l2_bytes=8 << 20)
    small_plan, big_plan = (
        min((plan for plan in winograd_plans(shape, machine, 2) if (plan.transform, plan.blocks) == (F4, 14)),
            key=lambda plan: plan.cycles)
        for machine in (MACHINE, big)
    )  # fmt: skip
    assert big_plan.cycles < 0.8 * small_plan.cycles
    chosen = plan_winograd(shape, big, 2)
    assert chosen is not None
    assert chosen.blocks > 2


@pytest.mark.parametrize(("transform", "bound"), [(F2, 1e-6), (F4, 5e-6)])
def test_rounding_stays_far_below_what_the_gate_allows(transform: Transform, bound: float) -> None:
    """A twentieth of the 1e-4 of the output's scale that the float64 gate adds to ONNX Runtime's own error."""
    d, g = data(transform, 256)
    exact = direct(d, g, transform.tile)
    error = np.abs(winograd(transform, d.astype(np.float32), g.astype(np.float32)) - exact).max()
    assert error < bound * np.abs(exact).max()


def plan(height: int, depth: int, channels: int) -> str:
    found = plan_winograd(WinogradShape(1, height, height, depth, height, height, channels, 1, 1, 16), MACHINE, 2)
    assert found is not None
    return str(found)


def test_large_images_take_the_larger_tile() -> None:
    assert plan(56, 64, 64).startswith("F(4x4)")
    assert plan(120, 96, 24).startswith("F(4x4)")


def test_few_tiles_do_not_pay_for_more_weights() -> None:
    """At 7x7 with 512 channels, F(4x4) would read 38 MB of weights for 4 tiles."""
    assert plan(7, 512, 512).startswith("F(2x2)")


def test_blocks_fit_half_of_the_second_cache() -> None:
    shape = WinogradShape(1, 200, 200, 4096, 200, 200, 16, 1, 1, 16)
    found = plan_winograd(shape, MACHINE, 2)
    assert found is None or 4 * found.transform.size**2 * 4096 < MACHINE.l2_bytes
