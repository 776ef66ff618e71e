"""Which point of a product is chosen, by what it takes of a device."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes  # noqa: F401, so that NumPy knows bfloat16
import numpy as np
import pytest
from tvm.relax import op

from backends.cuda.devices import A100, DEVICES, H100, CudaDevice
from backends.cuda.kernels.matmul.choose import choose, estimate, points
from backends.cuda.kernels.matmul.plan import Plan, cores_of
from backends.cuda.kernels.matmul.read import SumOfProducts, read_product
from fusion.declined import Declined
from tests.backends.cpu.kernels.memory_bound import prim_func


def product_of(rows: int, columns: int, depth: int, dtype: str = "float16") -> SumOfProducts:
    arrays = [np.zeros((rows, depth), np.dtype(dtype)), np.zeros((depth, columns), np.dtype(dtype))]
    return read_product(prim_func(lambda b, x, y: op.matmul(x, y), arrays))


def chosen(product: SumOfProducts, device: CudaDevice = A100, *, tfloat32: bool = False) -> Plan:
    return choose(product, cores_of(product, tfloat32=tfloat32), device)


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.arch)
@pytest.mark.parametrize(("dtype", "tfloat32"), [("float16", False), ("float32", False), ("float32", True)])
def test_each_point_suits_and_the_chosen_one_is_the_fastest_that_fits(
    device: CudaDevice, dtype: str, tfloat32: bool
) -> None:
    product = product_of(300, 200, 500, dtype)
    plans = list(points(product, cores_of(product, tfloat32=tfloat32)))
    times = [estimate(plan, device) for plan in plans]
    plan = chosen(product, device, tfloat32=tfloat32)
    assert len(plans) > 50
    assert not any(plan.why_not() for plan in plans)
    assert estimate(plan, device) == min(time for time in times if time is not None)
    assert device.blocks_at_once(plan.point.threads, plan.registers, plan.shared_bytes) > 0


def test_large_products_have_large_tiles_and_small_ones_many_blocks() -> None:
    large, small = chosen(product_of(4096, 4096, 4096)).point, chosen(product_of(128, 768, 768)).point
    assert large.rows * large.columns >= 128 * 128
    assert small.rows * small.columns < 64 * 64


def test_a_deep_product_of_few_tiles_is_split() -> None:
    assert chosen(product_of(64, 64, 16384)).point.split > 1
    assert chosen(product_of(4096, 4096, 512)).point.split == 1


def test_no_time_is_below_the_roofline() -> None:
    product = product_of(1024, 1024, 1024)
    floor = A100.floor(2 * 1024**3, 3 * 2 * 1024**2, A100.float16_gflops).seconds
    times = [estimate(plan, A100) for plan in points(product, cores_of(product))]
    assert all(time is None or time >= floor for time in times)
    plan = chosen(product)
    faster, slower = estimate(plan, H100), estimate(plan, A100)
    assert faster is not None
    assert slower is not None
    assert faster < slower


def test_a_device_without_the_shared_memory_has_no_point() -> None:
    with pytest.raises(Declined, match="no sizes of tiles"):
        chosen(product_of(64, 64, 64), replace(A100, block_shared_bytes=1024))
