"""Products: right against float64 in every order of threads, whatever their size, at every point."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from backends.cuda.kernels.matmul.choose import FLOAT_UNITS, TENSOR_CORES
from backends.cuda.kernels.matmul.plan import TileShape
from fusion.declined import Declined
from tests.backends.cpu.kernels.memory_bound import Build
from tests.backends.cuda.emulator.emulate import ORDERS, WHY_NOT, EmulatedError, emulate
from tests.backends.cuda.multiplied import SMALL, kernels_of, multiply

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

Orders = tuple[int, ...]
_UNIT = {"float16": 2**-24, "bfloat16": 2**-24, "float32": 2**-24, "tfloat32": 2**-10}
"""What is lost of each product: of numbers that are taken as they are only what sums in float32 lose."""


def drawn(dtype: str, *shape: int, seed: int = 2226) -> np.ndarray:
    numbers = np.random.default_rng((seed, *shape)).standard_normal(shape)
    return numbers.astype(np.dtype(dtype.removeprefix("t")))


def plain(b: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    return op.matmul(x, y, out_dtype="float32")


def turned(b: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    """Both operands lie the other way round."""
    return op.matmul(op.permute_dims(x, [1, 0]), op.permute_dims(y, [1, 0]), out_dtype="float32")


def check(
    x: np.ndarray,
    y: np.ndarray,
    *,
    dtype: str,
    point: TileShape | None = SMALL,
    turn: bool = False,
    orders: Orders = ORDERS,
) -> None:
    """Compare a product of matrices with float64; each sum may lose a unit of each of its products."""
    build, arrays = (turned, (np.ascontiguousarray(x.T), np.ascontiguousarray(y.T))) if turn else (plain, (x, y))
    done = multiply(build, *arrays, point=point, tfloat32=dtype == "tfloat32", orders=orders).result
    wide, other = x.astype(np.float64), y.astype(np.float64)
    most = (np.abs(wide) @ np.abs(other)) * _UNIT[dtype] * np.sqrt(x.shape[1]) + 1e-30
    assert (np.abs(done - wide @ other) <= most).all(), (dtype, x.shape, y.shape, point, turn)


@pytest.mark.parametrize(
    ("dtype", "sizes", "turn"),
    [
        (dtype, sizes, (i + j) % 2 == 1)  # all pairs of two
        for i, dtype in enumerate(_UNIT) for j, sizes in enumerate([(37, 40, 72), (33, 35, 31), (1, 9, 16)])
    ],
    ids=str,
)  # fmt: skip
def test_all_sizes_are_what_float64_says(dtype: str, sizes: tuple[int, int, int], turn: bool) -> None:
    rows, columns, depth = sizes
    check(drawn(dtype, rows, depth), drawn(dtype, depth, columns), dtype=dtype, turn=turn)


def test_a_result_that_is_turned_is_what_float64_says() -> None:
    x, y = drawn("float32", 21, 24), drawn("float32", 24, 35)
    done = multiply(lambda b, x, y: op.permute_dims(op.matmul(x, y), [1, 0]), x, y, point=SMALL).result
    np.testing.assert_allclose(done, (x.astype(np.float64) @ y.astype(np.float64)).T, rtol=1e-5, atol=1e-5)


def test_random_sizes_at_the_chosen_point_are_what_float64_says() -> None:
    random = np.random.default_rng(2227)
    for dtype in _UNIT:
        rows, columns, depth = (int(extent) for extent in random.integers(1, 150, 3))
        check(drawn(dtype, rows, depth), drawn(dtype, depth, columns), dtype=dtype, point=None)


_DEPTHS, _SPLITS = (16, 32, 64), (1, 2, 3)


@pytest.mark.parametrize("at", range(9))
def test_each_depth_stage_and_split_is_right(at: int) -> None:
    """Each with each of the others once: a Latin square."""
    depth, stages, split = _DEPTHS[at // 3], TENSOR_CORES.stages[at % 3], _SPLITS[(at + at // 3) % 3]
    x, y = drawn("float16", 40, 136), drawn("float16", 136, 24)
    point = replace(SMALL, depth=depth, stages=stages, split=split)
    check(x, y, dtype="float16", point=point, orders=(0, 3))


@pytest.mark.parametrize(
    ("dtype", "sizes", "blocks"),
    [
        ("float16", (70, 66, 100), 5), ("float16", (32, 32, 208), 5), ("float16", (100, 130, 40), 19),
        ("float32", (40, 40, 200), 7), ("tfloat32", (33, 96, 48), 4),
    ],
)  # fmt: skip
def test_blocks_that_share_all_steps_are_right(dtype: str, sizes: tuple[int, int, int], blocks: int) -> None:
    """Shares that end inside of tiles, tiles that several blocks have, blocks with whole tiles between two parts."""
    rows, columns, depth = sizes
    point = replace(SMALL, stream_blocks=blocks)
    check(drawn(dtype, rows, depth), drawn(dtype, depth, columns), dtype=dtype, point=point, orders=(0, 3))


_TILES = [
    *(("float16", *tile) for tile in TENSOR_CORES.tiles), *(("tfloat32", *tile) for tile in TENSOR_CORES.tiles[2::5]),
    *(("float32", *tile) for tile in FLOAT_UNITS.tiles[1::2]),
]  # fmt: skip


@pytest.mark.parametrize("tile", _TILES, ids=str)
def test_each_tile_of_the_space_is_right(tile: tuple[str, int, int, int, int]) -> None:
    dtype, rows, columns, warp_rows, warp_columns = tile
    depth = 32 if dtype == "float16" else 16
    point = TileShape(rows, columns, depth, warp_rows, warp_columns, stages=3)
    check(drawn(dtype, rows + 3, 40), drawn(dtype, 40, columns // 2 + 4), dtype=dtype, point=point, orders=(3,))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_what_is_behind_is_computed_in_float32_and_rounded_once(dtype: str) -> None:
    x, y, bias, more = drawn(dtype, 3, 20, 48), drawn(dtype, 48, 40), drawn(dtype, 40), drawn(dtype, 60, 40)

    def build(b: relax.BlockBuilder, x: relax.Expr, y: relax.Expr, bias: relax.Expr, more: relax.Expr) -> relax.Expr:
        gated = op.nn.relu(op.add(op.matmul(x, y), bias))
        return op.add(op.reshape(gated, (60, 40)), more)

    for point in (SMALL, replace(SMALL, split=2), replace(SMALL, stream_blocks=3)):
        done = multiply(build, x, y, bias, more, point=point).result.astype(np.float64)
        wide = [each.astype(np.float64) for each in (x, y, bias, more)]
        expected = np.maximum(wide[0] @ wide[1] + wide[2], 0).reshape(60, 40) + wide[3]
        epsilon = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-20}[dtype]
        np.testing.assert_allclose(done, expected, rtol=epsilon * 1.01, atol=1e-5)


def test_batches_and_heads_are_read_where_they_lie() -> None:
    """The scores of an attention whose heads are columns of two matrices."""
    queries, keys = drawn("float16", 2, 20, 3, 32), drawn("float16", 2, 24, 3, 32)

    def build(b: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        scores = op.matmul(op.permute_dims(x, [0, 2, 1, 3]), op.permute_dims(y, [0, 2, 3, 1]), out_dtype="float32")
        return op.multiply(scores, relax.const(0.125))

    done = multiply(build, queries, keys)
    expected = np.einsum("bihd,bjhd->bhij", queries.astype(np.float64), keys.astype(np.float64)) * 0.125
    np.testing.assert_allclose(done.result, expected, rtol=1e-5, atol=1e-5)
    assert done.counts[0].sector_share == 1.0


def test_one_matrix_for_all_batches_makes_rows_of_them() -> None:
    x, y = drawn("float32", 3, 5, 24), drawn("float32", 24, 12)
    done = multiply(plain, x, y)
    np.testing.assert_allclose(done.result, x.astype(np.float64) @ y, rtol=1e-5, atol=1e-5)
    assert done.counts[0].sector_share > 0.99


@pytest.mark.parametrize("dtype", _UNIT)
def test_aligned_bytes_are_of_full_sectors_and_wide_accesses(dtype: str) -> None:
    x, y = drawn(dtype, 64, 64), drawn(dtype, 64, 64)
    (counts,) = multiply(plain, x, y, tfloat32=dtype == "tfloat32").counts
    assert counts.sector_share == 1.0
    assert counts.wide_bytes == counts.load_bytes + counts.store_bytes
    assert (counts.products > 0) == (dtype != "float32")


def test_odd_rows_are_copied_by_lanes_along_the_rows() -> None:
    """Of 2 bytes a lane: 64 bytes of a row, which begin anywhere, lie in sectors of 30 bytes more; the
    ends of rows use less."""
    x, y = drawn("float16", 64, 197), drawn("float16", 197, 67)
    (counts,) = multiply(plain, x, y, point=replace(SMALL, depth=32), orders=(3,)).counts
    assert counts.load_bytes / (32 * counts.load_sectors) >= 0.9 * 64 / (64 + 30)


def test_many_copies_of_a_thread_are_a_loop() -> None:
    x, y, point = drawn("float16", 40, 197), drawn("float16", 197, 67), replace(SMALL, depth=64)
    assert "for (int copy" in kernels_of(plain, [x, y], point)[0].source
    assert "for (int copy" not in kernels_of(plain, [x, y], SMALL)[0].source
    check(x, y, dtype="float16", point=point)


def test_infinity_and_nan_stay_in_their_row() -> None:
    x, y = drawn("float16", 20, 40), drawn("float16", 40, 12)
    x[3, 7], x[5, 0] = np.inf, np.nan
    done = multiply(plain, x, y).result
    assert not np.isfinite(done[[3, 5]]).any()
    assert np.isfinite(np.delete(done, [3, 5], 0)).all()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_each_barrier_and_each_wait_is_needed(dtype: str) -> None:
    x, y = drawn(dtype, 32, 112), drawn(dtype, 112, 64)  # the last tile is where the sums begin
    (kernel,) = kernels_of(plain, [x, y], replace(SMALL, columns=64))
    given = {"x0": x, "x1": y}
    arrays = {name: given.get(name, np.full((32, 64), np.nan, np.float32)) for name in kernel.parameters}
    source, count = kernel.source, 0
    for needed, instead in (("__syncthreads();", ""), ("wait_copies<1>();", "wait_copies<2>();")):
        first, *pieces = source.split(needed)
        assert pieces
        source = first
        for piece in pieces:
            count += 1
            source += f"if (emulated_variant() == {count}) {{ {instead} }} else {needed}{piece}"
    changed = replace(kernel, source=source)
    emulate(changed, arrays)
    for variant in range(1, count + 1):
        with pytest.raises(EmulatedError, match=r"barrier is missing|on its way|nobody wrote"):
            emulate(changed, arrays, variant=variant)


@pytest.mark.parametrize(
    ("build", "shapes", "reason"),
    [
        (lambda b, x, y: op.add(x, y), [(8, 8), (8, 8)], "not one reduction"),
        (lambda b, x: op.sum(x, -1), [(8, 8)], "no sum of products"),
        (lambda b, x: op.max(op.multiply(x, x), -1), [(8, 8)], "no sum of products"),
        (lambda b, x, y: op.matmul(op.exp(x), y), [(8, 8), (8, 8)], "computed inside"),
        (lambda b, x, y: op.nn.softmax(op.matmul(x, y), -1), [(8, 8), (8, 8)], "not one reduction"),
        (lambda b, x, y: op.flip(op.matmul(x, y), 1), [(8, 8), (8, 8)], "another position"),
    ],
)
def test_what_it_does_not_compute_is_declined(build: Build, shapes: list[tuple[int, ...]], reason: str) -> None:
    with pytest.raises(Declined, match=reason):
        multiply(build, *(drawn("float32", *shape) for shape in shapes))


def test_products_of_float64_are_declined() -> None:
    with pytest.raises(Declined, match="other numbers than two of one type"):
        multiply(lambda b, x, y: op.matmul(x, y), drawn("float64", 8, 8), drawn("float64", 8, 8))


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        (replace(SMALL, warp_columns=8, columns=8), "no multiple of 16 x 16"),
        (replace(SMALL, rows=40), "do not divide the block"),
        (replace(SMALL, depth=48), "no power of two"),
        (replace(SMALL, depth=64, split=2), "nothing to add up"),
        (replace(SMALL, stream_blocks=17), "fewer than the blocks"),
        (replace(SMALL, split=2, stream_blocks=3), "split twice"),
        (replace(SMALL, stream_blocks=2), "inside of a tile"),
    ],
)
def test_points_that_do_not_suit_are_declined(point: TileShape, reason: str) -> None:
    with pytest.raises(Declined, match=reason):
        multiply(plain, drawn("float16", 64, 64), drawn("float16", 64, 64), point=point)
