"""Memory-bound kernels use the sectors that they move, also at sizes that no sector divides: counted on the emulator.

A tensor that ends inside of a sector leaves the rest of it unused: of 49 float16 that is a quarter, of 9,000 nothing.
Tensors have some kilobytes here, as those of models have at least. Where a kernel only moves numbers, it is compared
with what no kernel can do without: each sector that holds one of them, once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from backends.cuda.codegen.device_code import generate_kernels
from backends.cuda.devices import A100
from backends.cuda.kernels.runs import SECTOR_BYTES
from backends.cuda.schedule import schedule
from tests.backends.cpu.kernels.memory_bound import Build, prim_func
from tests.backends.cuda.emulated import numbers
from tests.backends.cuda.emulator.emulate import WHY_NOT
from tests.backends.cuda.planned import run_kernels

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

Reference = Callable[..., np.ndarray]


def softmax_in_float64(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def norm_in_float64(x: np.ndarray, y: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    off = x + y - (x + y).mean(-1, keepdims=True)
    return off / np.sqrt((off * off).mean(-1, keepdims=True) + 1e-5) * gamma + beta


def padded_pool(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    return op.nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1, 1, 1), layout="NHWC")


def pool_in_float64(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2].max((-1, -2))


def averaged(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    return op.nn.relu(op.nn.avg_pool2d(x, (2, 2), (2, 2), layout="NHWC"))


def average_in_float64(x: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), (1, 2))[:, ::2, ::2]
    return np.maximum(windows.mean((-1, -2)), 0)


def padded_and_joined(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.concatenate([np.pad(x, [(0, 0), (1, 0)]), y], 1)


def scaled_heads(b: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    return op.permute_dims(b.emit(op.multiply(x, y)), [0, 2, 1, 3])


def classified(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    row = b.emit(op.reshape(b.emit(op.astype(b.emit(op.reshape(x, (1, 1000, 1, 1))), "float32")), (1, 1000)))
    return op.astype(b.emit(op.reshape(b.emit(op.nn.softmax(row, -1)), (1, 1000, 1, 1))), str(x.ty.dtype))


CASES: list[tuple[Build, Reference, list[tuple[int, ...]]]] = [
    (lambda b, x: op.nn.softmax(x, -1), softmax_in_float64, [(96, 49)]),
    (lambda b, x: op.nn.softmax(x, -1), softmax_in_float64, [(33, 197)]),
    (lambda b, x: op.nn.softmax(x, -1), softmax_in_float64, [(3, 5001)]),
    (classified, lambda x: softmax_in_float64(x).reshape(1, 1000, 1, 1), [(1, 1, 1, 1000)]),
    (lambda b, x, y, g, e: op.nn.layer_norm(op.add(x, y), g, e, -1), norm_in_float64, [(40, 197)] * 2 + [(197,)] * 2),
    (lambda b, x: op.mean(x, [2, 3]), lambda x: x.mean((2, 3)), [(2, 64, 7, 7)]),
    (lambda b, x: op.max(x, -1), lambda x: x.max(-1), [(64, 1000)]),
    (lambda b, x: op.sum(x, -1), lambda x: x.sum(-1), [(1, 50_000)]),
    (lambda b, x: op.mean(x, [1, 2]), lambda x: x.mean((1, 2)), [(1, 33, 32, 8)]),
    (padded_pool, pool_in_float64, [(1, 9, 9, 64)]),
    (padded_pool, pool_in_float64, [(2, 19, 17, 12)]),
    (padded_pool, pool_in_float64, [(1, 12, 14, 65)]),
    (padded_pool, pool_in_float64, [(1, 11, 112, 24)]),
    (averaged, average_in_float64, [(2, 13, 18, 36)]),
    (lambda b, x: op.sum(x, 0), lambda x: x.sum(0), [(300, 65)]),
    (lambda b, x: op.mean(x, [1, 2]), lambda x: x.mean((1, 2)), [(5, 7, 7, 33)]),
    (lambda b, x, y: op.max(op.add(x, y), 1), lambda x, y: (x + y).max(1), [(9, 40, 21)] * 2),
    (lambda b, x: op.sum(x, 0), lambda x: x.sum(0), [(1500, 65)]),
    (lambda b, x: op.sum(x, -1), lambda x: x.sum(-1), [(3, 10_007)]),
    (lambda b, x: op.nn.relu(x), lambda x: np.maximum(x, 0), [(17, 147)]),
    (lambda b, x: op.permute_dims(x, [0, 2, 1]), lambda x: x.transpose(0, 2, 1), [(2, 64, 96)]),
    (lambda b, x: op.permute_dims(x, [1, 0]), lambda x: x.T, [(801, 64)]),
    (lambda b, x: op.permute_dims(x, [1, 0]), lambda x: x.T, [(32, 1089)]),
    (lambda b, x: op.permute_dims(x, [0, 2, 3, 1]), lambda x: x.transpose(0, 2, 3, 1), [(1, 3, 40, 48)]),
    (lambda b, x: op.permute_dims(x, [0, 3, 1, 2]), lambda x: x.transpose(0, 3, 1, 2), [(1, 40, 48, 3)]),
    (lambda b, x: op.permute_dims(x, [0, 2, 1]), lambda x: x.transpose(0, 2, 1), [(40, 4, 34)]),
    (scaled_heads, lambda x, y: x.transpose(0, 2, 1, 3) * y, [(1, 40, 8, 15), (1,)]),
]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("build", "reference", "shapes"), CASES)
def test_at_least_95_percent_of_the_bytes_of_sectors_are_used(
    build: Build, reference: Reference, shapes: list[tuple[int, ...]], dtype: str
) -> None:
    arrays = [numbers(*shape).astype(dtype) for shape in shapes]
    func = prim_func(build, arrays)
    output = np.full([int(n) for n in func.params[-1].ty.shape], np.nan, dtype)
    kernels = generate_kernels("kernel", schedule(func, A100).func, "sm_80")
    counts = run_kernels(kernels, [*arrays, output], (3,))
    rtol = {"float32": 1e-5, "float16": 2**-9}[dtype]
    np.testing.assert_allclose(output, reference(*(each.astype(np.float64) for each in arrays)), rtol=rtol, atol=rtol)
    used = sum(each.load_bytes + each.store_bytes for each in counts)
    assert used / sum(32 * (each.load_sectors + each.store_sectors) for each in counts) >= 0.95
    assert used <= sum(launch.traffic.thread_bytes for launch in kernels.launches)


MOVED: list[tuple[Build, Callable[..., np.ndarray], list[tuple[int, ...]]]] = [
    (lambda b, x: op.strided_slice(x, [1], [3], [52]), lambda x: x[:, 3:52], [(64, 80)]),
    (lambda b, x: op.strided_slice(x, [1], [1], [197]), lambda x: x[:, 1:], [(24, 197)]),
    (lambda b, x: op.strided_slice(x, [1, 2], [1, 3], [6, 12]), lambda x: x[:, 1:6, 3:12], [(9, 8, 20, 3)]),
    (lambda b, x: op.nn.pad(x, [0, 0, 1, 2, 3, 4]), lambda x: np.pad(x, [(0, 0), (1, 2), (3, 4)]), [(5, 31, 29)]),
    (lambda b, *xs: op.concat(xs, 1), lambda *xs: np.concatenate(xs, 1), [(64, 49), (64, 31), (64, 5)]),
    (lambda b, x: op.permute_dims(x, [1, 0]), lambda x: x.T, [(197, 49)]),
    (lambda b, x: op.permute_dims(x, [0, 2, 1]), lambda x: x.transpose(0, 2, 1), [(2, 65, 49)]),
    (lambda b, x: op.permute_dims(x, [1, 0]), lambda x: x.T, [(197, 96)]),
    (lambda b, x, y: op.concat([op.nn.pad(x, [0, 0, 1, 0]), y], 1), padded_and_joined, [(64, 48), (64, 31)]),
]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("build", "reference", "shapes"), MOVED)
def test_what_is_moved_comes_in_hardly_more_sectors_than_it_lies_in(
    build: Build, reference: Callable[..., np.ndarray], shapes: list[tuple[int, ...]], dtype: str
) -> None:
    arrays = [numbers(*shape).astype(dtype) for shape in shapes]
    func = prim_func(build, arrays)
    output = np.full([int(n) for n in func.params[-1].ty.shape], np.nan, dtype)
    kernels = generate_kernels("kernel", schedule(func, A100).func, "sm_80")
    counts = run_kernels(kernels, [*arrays, output], (0, 3))
    np.testing.assert_array_equal(output, reference(*arrays))
    moved = sum(each.load_sectors + each.store_sectors for each in counts)
    assert SECTOR_BYTES * moved <= sum(launch.traffic.thread_bytes for launch in kernels.launches)
    assert (sectors_read(reference, arrays) + -(-output.nbytes // SECTOR_BYTES)) / moved >= 0.95


@pytest.mark.parametrize(("dtype", "shape"), [("float32", (201, 331)), ("float16", (399, 397))])
def test_transposes_of_which_neither_side_is_whole_use_what_lines_of_a_tile_can(
    dtype: str, shape: tuple[int, int]
) -> None:
    """A line of 64 numbers that begins anywhere lies in sectors of its own bytes and one more, less one number."""
    x = numbers(*shape).astype(dtype)
    func = prim_func(lambda b, x: op.permute_dims(x, [1, 0]), [x])
    output = np.full(x.T.shape, np.nan, x.dtype)
    counts = run_kernels(generate_kernels("kernel", schedule(func, A100).func, "sm_80"), [x, output], (3,))
    np.testing.assert_array_equal(output, x.T)
    line = 64 * x.itemsize
    most = line / (line + SECTOR_BYTES - x.itemsize)
    assert most < 0.95
    assert sum(each.load_bytes + each.store_bytes for each in counts) == 2 * x.nbytes
    moved = sum(each.load_sectors + each.store_sectors for each in counts)
    assert 2 * x.nbytes / (SECTOR_BYTES * moved) >= 0.95 * most


@pytest.mark.parametrize(("shape", "axis"), [((15, 15, 24), 0), ((60, 15, 24), 1), ((2, 1, 128), 0)], ids=str)
def test_rows_that_int64_looks_up_are_moved_by_16_bytes(shape: tuple[int, ...], axis: int) -> None:
    """As a resizing by 8 takes them; an index that all neighbours share makes no access of theirs narrower."""
    x, rows = numbers(*shape).astype("float16"), np.arange(8 * shape[axis], dtype=np.int64) // 8
    func = prim_func(lambda b, x, rows: op.take(x, rows, axis), [x, rows])
    output = np.full([int(n) for n in func.params[-1].ty.shape], np.nan, "float16")
    (counts,) = run_kernels(generate_kernels("kernel", schedule(func, A100).func, "sm_80"), [x, rows, output], (0, 3))
    np.testing.assert_array_equal(output, np.take(x, rows, axis))
    assert counts.sector_share >= 0.95
    assert counts.wide_bytes >= 2 * output.nbytes


def test_columns_that_int64_looks_up_are_read_by_threads_of_two() -> None:
    """Each neighbour has an index of its own, as many of which a thread has as one access brings of them."""
    x, columns = numbers(16, 5).astype("float16"), np.arange(1024, dtype=np.int64) % 5
    func = prim_func(lambda b, x, columns: op.take(x, columns, 1), [x, columns])
    output = np.full((16, 1024), np.nan, "float16")
    kernels = generate_kernels("kernel", schedule(func, A100).func, "sm_80")
    (counts,) = run_kernels(kernels, [x, columns, output], (0, 3))
    np.testing.assert_array_equal(output, np.take(x, columns, 1))
    assert kernels.launches[0].kernel.blocks == output.size / 2 / 256
    assert counts.load_sectors < 2.5 * output.size * columns.itemsize / SECTOR_BYTES


def sectors_read(reference: Callable[..., np.ndarray], arrays: list[np.ndarray]) -> int:
    """Return in how many sectors those elements of the arrays lie that the result has."""
    of_sector = SECTOR_BYTES // arrays[0].itemsize
    numbered, first = [], of_sector  # what is padded is 0, in a sector of its own
    for array in arrays:
        numbered.append(first + np.arange(array.size).reshape(array.shape))
        first += -(-array.size // of_sector) * of_sector
    return np.count_nonzero(np.unique(reference(*numbered) // of_sector))
