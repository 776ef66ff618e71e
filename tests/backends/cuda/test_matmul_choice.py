"""Which point of a product is chosen, by what it takes of a device."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import ml_dtypes  # noqa: F401, so that NumPy knows bfloat16
import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op
from tvm.sym import Analyzer

from backends.cuda.devices import A100, DEVICES, H100, CudaDevice
from backends.cuda.kernels.matmul.choose import choose, estimate, estimate_point, points
from backends.cuda.kernels.matmul.plan import Plan, TileShape, cores_of
from backends.cuda.kernels.matmul.read import SumOfProducts, read_product
from backends.cuda.kernels.matmul.step_shares import StepShares
from backends.cuda.lowerings import LOWERINGS
from fusion.declined import Declined
from tests.backends.cpu.kernels.memory_bound import prim_func


def product_of(rows: int, columns: int, depth: int, dtype: str = "float16") -> SumOfProducts:
    arrays = [np.zeros((rows, depth), np.dtype(dtype)), np.zeros((depth, columns), np.dtype(dtype))]
    return read_product(prim_func(lambda b, x, y: op.matmul(x, y), arrays))


def convolved(b: relax.BlockBuilder, x: relax.Expr, w: relax.Expr) -> relax.Expr:
    """Return a convolution of images with channels last, whose weights lie so too, that keeps their size."""
    (lower,) = LOWERINGS["relax.nn.conv2d"]
    turned = b.emit(op.permute_dims(w, [0, 3, 1, 2]))
    layouts = {"data_layout": "NHWC", "kernel_layout": "OIHW"}
    return lower.apply(b, b.normalize(op.nn.conv2d(x, turned, padding=int(w.ty.shape[1]) // 2, **layouts)))


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
    assert not plan.point.stream_blocks
    assert len(plans) > 50
    assert not any(plan.why_not() for plan in plans)
    assert estimate(plan, device) == min(time for time in times if time is not None)
    assert device.blocks_at_once(plan.point.threads, plan.registers, plan.shared_bytes) > 0


def test_large_products_have_large_tiles_and_small_ones_many_blocks() -> None:
    large, small = chosen(product_of(4096, 4096, 4096)).point, chosen(product_of(128, 768, 768)).point
    assert large.rows * large.columns >= 128 * 128
    assert small.rows * small.columns < 64 * 64


@pytest.mark.parametrize(
    ("dtype", "tile", "blocks"),
    [
        ("float32", (64, 64, 16, 32, 32, 3), 3),
        ("float16", (128, 128, 32, 64, 32, 3), 1),
        ("float16", (64, 64, 32, 32, 32, 3), None),
    ],
)
def test_ptxas_is_told_how_many_blocks_an_sm_holds_where_a_thread_takes_many_registers(
    dtype: str, tile: tuple[int, ...], blocks: int | None
) -> None:
    product = product_of(1024, 1024, 1024, dtype)
    plan = Plan(product, cores_of(product), TileShape(*tile))
    assert plan.blocks_of_sm == blocks
    shared = replace(plan, point=replace(plan.point, stream_blocks=27))
    assert shared.blocks_of_sm


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.arch)
def test_what_windows_read_often_is_in_memory_once(device: CudaDevice) -> None:
    """Of 64 columns no tile of 128 is better, and the least time of memory hides no waves: an image counts once."""
    image, weight = np.zeros((8, 56, 56, 64), "float16"), np.zeros((64, 3, 3, 64), "float16")
    product = read_product(prim_func(convolved, [image, weight]))
    assert product.moved_bytes == 2 * image.nbytes + weight.nbytes
    assert product.batches * product.rows * product.depth == 9 * image.size
    plan = chosen(product, device)
    assert plan.point.columns == 64
    waves = {point.waves_s for each in points(product, plan.cores) if (point := estimate_point(each, device))}
    assert estimate(plan, device) == min(waves)


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.arch)
def test_of_points_that_memory_makes_alike_the_one_that_computes_least_is_taken(device: CudaDevice) -> None:
    product = product_of(1 << 20, 24, 16)
    plan = chosen(product, device)
    found = [point for each in points(product, plan.cores) if (point := estimate_point(each, device))]
    own = estimate_point(plan, device)
    alike = [point for point in found if point.seconds == min(found).seconds]
    assert own == min(alike)
    assert own.waves_s < own.seconds == device.floor(0, product.moved_bytes).seconds
    assert len({point.waves_s for point in alike}) > 1
    assert plan.point.columns == 32


def test_a_deep_product_of_few_tiles_is_split() -> None:
    assert chosen(product_of(64, 64, 16384)).point.split > 1
    assert chosen(product_of(4096, 4096, 512)).point.split == 1


def test_tiles_that_leave_most_of_their_last_wave_idle_share_all_steps() -> None:
    """144 tiles of 128 x 128 are two waves of 132 SMs, of which the second has 12 blocks."""
    plan = chosen(product_of(1536, 1536, 4096), H100)
    assert plan.point.stream_blocks == plan.blocks == H100.sms
    assert (plan.tiles, plan.steps_of_block) == ((12, 12, 64), 70)
    whole = replace(plan, point=replace(plan.point, stream_blocks=0))
    shared, alone = estimate(plan, H100), estimate(whole, H100)
    assert shared is not None
    assert alone is not None
    assert 1.25 < alone / shared < 2 * 64 / 70  # of which the parts' way through memory and a launch take some
    assert chosen(product_of(1408, 1536, 4096), H100).point.stream_blocks == 0  # 132 tiles


def test_shares_are_all_steps_in_order() -> None:
    for steps, blocks, of_tile in ((12, 2, 4), (100, 7, 10), (9216, 132, 64)):
        shares = StepShares(steps, blocks, of_tile)
        begins = [int(Analyzer().simplify(shares.begin(tirx.const(block, "int64")))) for block in range(blocks + 1)]
        assert (begins[0], begins[-1]) == (0, steps)
        assert {after - before for before, after in pairwise(begins)} <= {shares.most, steps // blocks}
        for step in range(0, steps, 5):
            found = int(Analyzer().simplify(shares.block_of(tirx.const(step, "int64"))))
            assert begins[found] <= step < begins[found + 1]


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
