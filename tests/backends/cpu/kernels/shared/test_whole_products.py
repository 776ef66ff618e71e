"""Products of bytes in tiles, exact, and of bfloat16, as exact as sums in float32: whatever the sizes, and where no
tiles are granted."""

from __future__ import annotations

from contextlib import nullcontext

import ml_dtypes
import numpy as np
import pytest
from torch import from_numpy
from torch.nn import functional
from tvm import relax
from tvm.relax import op

from backends.cpu.kernels.shared.blocking import choose_blocking
from backends.cpu.kernels.shared.extents import Extents, may_be_in_tiles
from backends.cpu.kernels.shared.lowering.packing import pack_matmul_joined
from backends.cpu.kernels.shared.packed_tiles import TilePacking
from backends.cpu.kernels.shared.tile_products import TileSteps
from backends.cpu.kernels.shared.whole_products import BYTES_IN_TILES
from backends.cpu.machine import Machine
from fusion import context
from fusion.constants import constant
from partition.access import CONV2D, MATMUL
from tests.backends.cpu.kernels.anchored import normal, run
from tests.backends.cpu.kernels.shared.test_term_products import in_tiles, refused
from tests.passes.test_multiply_bytes import drawn

EMERALD_RAPIDS = Machine(16, 32, 48 << 10, 2 << 20, 260 << 20, l1_ways=12, dot_bytes=True, byte_tiles=True)

needs_tiles = pytest.mark.skipif(
    not context.resolve("llvm").compiler.machine.byte_tiles, reason="the CPU has no tiles of bytes"
)
needs_tiles_of_bfloat16 = pytest.mark.skipif(
    not context.resolve("llvm").compiler.machine.tiles, reason="the CPU has no tiles of bfloat16"
)


@needs_tiles
@pytest.mark.parametrize("granted", [True, False])
@pytest.mark.parametrize(
    ("rows", "depth", "channels"),
    [(1, 1, 1), (3, 5, 7), (32, 64, 16), (33, 64, 17), (70, 63, 40), (100, 190, 300), (64, 1600, 33), (40, 5000, 272)],
)
def test_products_in_tiles_are_exact(rows: int, depth: int, channels: int, granted: bool) -> None:
    data, weights = drawn("uint8", rows, depth), drawn("int8", depth, channels)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.matmul(x, relax.const(weights), out_dtype="int32")

    for share in (0.0, 1.0):
        with in_tiles(MATMUL, share), nullcontext() if granted else refused():
            (found,) = run(build, [data], "llvm", 2).outputs
        np.testing.assert_array_equal(found, data.astype("int64") @ weights)


@needs_tiles
def test_what_is_behind_products_of_the_same_rows() -> None:
    data, first, second = drawn("uint8", 50, 72), drawn("int8", 72, 40), drawn("int8", 72, 90)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        one, other = (b.emit(op.matmul(x, relax.const(each), out_dtype="int32")) for each in (first, second))
        less = b.emit(op.subtract(other, relax.const(np.int32(77))))
        scaled = op.multiply(b.emit(op.astype(less, "float32")), relax.const(np.float32(0.25)))
        return relax.Tuple([one, b.emit(scaled)])

    with in_tiles(MATMUL):
        one, other = run(build, [data], "llvm", 2).outputs
    wide = data.astype("int64")
    np.testing.assert_array_equal(one, wide @ first)
    np.testing.assert_array_equal(other, (wide @ second - 77).astype("float32") / 4)


@needs_tiles
@pytest.mark.parametrize("tiles", [True, False])
@pytest.mark.parametrize(
    ("depth", "kernel", "stride", "padding", "channels"),
    [(3, 3, 2, 1, 24), (20, 3, 1, 1, 40), (33, 5, 2, 2, 17), (64, 1, 2, 0, 20)],
)
def test_convolutions_are_exact(
    depth: int, kernel: int, stride: int, padding: int, channels: int, tiles: bool
) -> None:  # fmt: skip
    data, weights = drawn("uint8", 2, 13, 11, depth), drawn("int8", channels, depth, kernel, kernel)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.conv2d(
            x, relax.const(weights), strides=stride, padding=padding, data_layout="NHWC", kernel_layout="OIHW",
            out_dtype="int32",
        )  # fmt: skip

    images, wide = (from_numpy(each.astype("float64")) for each in (data.transpose(0, 3, 1, 2), weights))
    exact = functional.conv2d(images, wide, stride=stride, padding=padding).permute(0, 2, 3, 1).numpy()
    with in_tiles(CONV2D) if tiles else nullcontext():
        ran = run(build, [data], "llvm", 2)
    np.testing.assert_array_equal(ran.outputs[0], exact)
    assert ran.templates() == [CONV2D]


@pytest.mark.parametrize("depth", [4, 45, 64, 600])
def test_bytes_are_packed_in_the_order_of_tiles(depth: int) -> None:
    weights = drawn("int8", depth, 40)
    steps = TileSteps((), depth, BYTES_IN_TILES)
    packed = TilePacking(steps)(pack_matmul_joined(weights, 16, 4))[:-16].reshape(steps.strips, 3, 8, 16, 16, 4)
    columns = packed.transpose(1, 4, 0, 2, 3, 5).reshape(48, -1)
    np.testing.assert_array_equal(columns[:40, :depth].T, weights)
    assert not columns[40:].any()
    assert not columns[:, depth:].any()


def sizes(rows: int, depth: int, channels: int) -> Extents:
    """Return those of rows times a packed matrix."""
    extents = Extents(
        outer=1, groups=1, height=rows, width=1, channels=channels, taps=(), depth=depth, lanes=16,
        input_bytes=rows * depth, row_pitch=depth, dtype="uint8", step=4,
    )  # fmt: skip
    return may_be_in_tiles(extents, EMERALD_RAPIDS)


@pytest.mark.parametrize("shape", [(2048, 768, 768), (64, 384, 1536), (512, 768, 3072)])
def test_many_rows_times_large_matrices_are_multiplied_in_tiles(shape: tuple[int, int, int]) -> None:
    assert choose_blocking(sizes(*shape), EMERALD_RAPIDS, 2).in_tiles


@pytest.mark.parametrize("shape", [(1, 768, 768), (4, 768, 3072)])
def test_few_rows_are_not(shape: tuple[int, int, int]) -> None:
    assert not choose_blocking(sizes(*shape), EMERALD_RAPIDS, 2).in_tiles


def narrow(*shape: int) -> np.ndarray:
    return normal(shape, sum(shape)).astype(ml_dtypes.bfloat16)


@needs_tiles_of_bfloat16
@pytest.mark.parametrize("granted", [True, False])
@pytest.mark.parametrize(
    ("rows", "depth", "channels"), [(1, 1, 1), (3, 5, 7), (33, 32, 17), (70, 63, 40), (64, 1600, 33), (40, 5000, 272)]
)
def test_products_of_bfloat16_are_summed_in_float32(rows: int, depth: int, channels: int, granted: bool) -> None:
    data, weights = narrow(rows, depth), narrow(depth, channels)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.matmul(x, constant(weights), out_dtype="float32")

    for share in (0.0, 1.0):
        with in_tiles(MATMUL, share), nullcontext() if granted else refused():
            (found,) = run(build, [data], "llvm", 2).outputs
        exact = data.astype("float64") @ weights.astype("float64")
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=2.0**-24 * depth)


@needs_tiles_of_bfloat16
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_bfloat16_that_is_not_finite_stays_in_its_row(value: float) -> None:
    data, weights = narrow(40, 64), narrow(64, 32)
    data[7, 3] = value

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.matmul(x, constant(weights), out_dtype="float32")

    with in_tiles(MATMUL):
        (found,) = run(build, [data], "llvm", 2).outputs
    assert not np.isfinite(found[7]).any()
    assert np.isfinite(np.delete(found, 7, axis=0)).all()


@needs_tiles_of_bfloat16
@pytest.mark.parametrize(
    ("depth", "kernel", "stride", "padding", "channels"), [(20, 3, 1, 1, 40), (33, 5, 2, 2, 17), (64, 1, 2, 0, 20)]
)
def test_convolutions_of_bfloat16_are_summed_in_float32(
    depth: int, kernel: int, stride: int, padding: int, channels: int
) -> None:
    data, weights = narrow(2, 13, 11, depth), narrow(channels, depth, kernel, kernel)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.conv2d(
            x, constant(weights), strides=stride, padding=padding, data_layout="NHWC", kernel_layout="OIHW",
            out_dtype="float32",
        )  # fmt: skip

    images, wide = (from_numpy(each.astype("float64")) for each in (data.transpose(0, 3, 1, 2), weights))
    exact = functional.conv2d(images, wide, stride=stride, padding=padding).permute(0, 2, 3, 1).numpy()
    with in_tiles(CONV2D):
        (found,) = run(build, [data], "llvm", 2).outputs
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)
