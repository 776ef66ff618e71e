"""Reductions that threads do alone: right against float64 in every order of threads, whatever their size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import ml_dtypes  # noqa: F401, so that NumPy knows bfloat16
import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from backends.cuda.codegen.device_code import generate_kernels
from backends.cuda.devices import A100
from backends.cuda.kernels.inlined import inlined_stage
from backends.cuda.kernels.reductions.emit import emit_reductions
from backends.cuda.kernels.reductions.groups.read import grouped_sum
from backends.cuda.kernels.reductions.read import read_reductions
from backends.cuda.lowerings import LOWERINGS
from fusion.declined import Declined
from tests.backends.cpu.kernels.memory_bound import Build, prim_func
from tests.backends.cuda import emulated
from tests.backends.cuda.emulated import numbers
from tests.backends.cuda.emulator.emulate import ORDERS, WHY_NOT
from tests.backends.cuda.planned import run_kernels

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

run = partial(emulated.run, partial(emit_reductions, device=A100))


def run_several(build: Build, *arrays: np.ndarray) -> np.ndarray:
    """Return the output of what is several launches."""
    func = prim_func(build, arrays)
    output = np.full([int(n) for n in func.params[-1].ty.shape], np.nan, str(func.params[-1].ty.dtype.dtype))
    run_kernels(generate_kernels("kernel", emit_reductions(func, A100), "sm_80"), [*arrays, output], ORDERS)
    return output


def pool(kind: str, b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    how = {"strides": (2, 2), "padding": (1, 1, 1, 1), "layout": "NHWC"}
    pooled = op.nn.max_pool2d(x, (3, 3), **how) if kind == "max" else op.nn.avg_pool2d(x, (3, 3), **how)
    return op.nn.relu(op.subtract(pooled, relax.const(0.25)))


def pool_in_float64(kind: str, x: np.ndarray) -> np.ndarray:
    empty = -np.inf if kind == "max" else 0
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=empty)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
    counts = np.lib.stride_tricks.sliding_window_view(np.pad(np.ones(x.shape[1:3]), 1), (3, 3))[::2, ::2].sum((-1, -2))
    pooled = windows.max((-1, -2)) if kind == "max" else windows.sum((-1, -2)) / counts[..., None]
    return np.maximum(pooled - 0.25, 0)


@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("shape", [(1, 9, 7, 5), (2, 6, 8, 12)], ids=str)
def test_a_pool_is_what_float64_says(kind: str, shape: tuple[int, ...]) -> None:
    x = numbers(*shape)
    done, counts = run(partial(pool, kind), x)
    np.testing.assert_allclose(done, pool_in_float64(kind, x), rtol=1e-6, atol=1e-7)
    assert counts.worst_conflict <= 2


def test_random_windows_are_what_float64_says() -> None:
    random = np.random.default_rng(2241)
    for _ in range(6):
        images, height, width, channels, window, stride = (
            int(n) for n in random.integers((1, 3, 3, 1, 2, 1), (4, 14, 14, 45, 4, 4))
        )
        how = {"strides": (stride, stride), "padding": (1, 1, 1, 1), "layout": "NHWC"}
        x = numbers(images, height, width, channels)
        done, counts = run(lambda b, x, n=window, how=how: op.nn.max_pool2d(x, (n, n), **how), x)
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (window, window), (1, 2))[:, ::stride, ::stride]
        np.testing.assert_array_equal(done, windows.max((-1, -2)), err_msg=f"{x.shape}, {window}, {stride}")
        assert counts.worst_conflict <= 4


def test_random_sums_are_what_float64_says() -> None:
    random = np.random.default_rng(2242)
    for _ in range(8):
        shape = tuple(int(n) for n in random.integers(1, (20, 60, 70)))
        axes = [int(axis) for axis in random.choice(3, int(random.integers(1, 4)), replace=False)]
        x = numbers(*shape)
        done = run_several(lambda b, x, axes=axes: op.nn.relu(op.sum(x, axes)), x)
        wanted = np.maximum(x.astype(np.float64).sum(tuple(axes)), 0)
        np.testing.assert_allclose(done, wanted, rtol=1e-5, atol=1e-4, err_msg=f"{shape}, {axes}")


def test_a_pool_of_many_channels_reads_full_sectors() -> None:
    counts = run(lambda b, x: op.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"), numbers(1, 8, 8, 64))[1]
    assert counts.sector_share == 1
    assert counts.wide_bytes == counts.load_bytes + counts.store_bytes


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sums_over_any_axis_are_right(axis: int) -> None:
    x = numbers(7, 33, 12)
    done = run(lambda b, x: op.nn.relu(op.sum(x, axis)), x)[0]
    np.testing.assert_allclose(done, np.maximum(x.astype(np.float64).sum(axis), 0), rtol=1e-5, atol=1e-5)


def test_rows_that_are_too_long_for_a_warp_are_several_launches() -> None:
    x = numbers(3, 1027)
    powers = np.exp(x.astype(np.float64))
    expected = powers / powers.sum(-1, keepdims=True)
    np.testing.assert_allclose(run_several(lambda b, x: op.nn.softmax(x, -1), x), expected, rtol=3e-6)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1, 50_000), 1), ((3, 33_333), 1), ((1, 50_021), 1), ((3000, 8), 0), ((2053, 5), 0), ((2, 1500, 12), 1)],
    ids=str,
)
def test_long_reductions_of_few_results_are_two_launches(shape: tuple[int, ...], axis: int) -> None:
    x = numbers(*shape)
    func = prim_func(lambda b, x: op.add(op.mean(x, axis), relax.const(1.0)), [x])
    kernels = generate_kernels("kernel", emit_reductions(func, A100), "sm_80")
    output = np.full([int(n) for n in func.params[-1].ty.shape], np.nan, np.float32)
    run_kernels(kernels, [x, output], (0, 3))
    np.testing.assert_allclose(output, x.astype(np.float64).mean(axis) + 1, rtol=1e-5)
    assert len(kernels.launches) == 2


def masked(b: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    dtype = str(x.ty.dtype)
    left = b.emit(op.less(y, relax.const(0.0, dtype)))
    mask = b.emit(op.where(left, relax.const(-np.inf, dtype), relax.const(0.0, dtype)))
    return relax.Tuple([mask, b.emit(op.nn.softmax(b.emit(op.add(x, mask)), -1))])


def masked_in_float64(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    mask = np.where(y < 0, -np.inf, 0.0)
    powers = np.exp(x + mask)
    return mask, powers / powers.sum(-1, keepdims=True)


def a_row_of_norms(b: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    scale = b.emit(op.reshape(y, (36,)))
    norm = b.emit(op.nn.layer_norm(x, scale, scale, -1))
    return relax.Tuple([norm, b.emit(op.strided_slice(norm, [1], [4], [5]))])


def a_row_of_norms_in_float64(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    off = x - x.mean(-1, keepdims=True)
    norm = off / np.sqrt((off * off).mean(-1, keepdims=True) + 1e-5) * y[0, 0] + y[0, 0]
    return norm, norm[:, 4:5]


SHAPES = [(masked, masked_in_float64), (a_row_of_norms, a_row_of_norms_in_float64)]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("build", "reference"), SHAPES)
def test_outputs_of_several_shapes_read_what_others_stored(
    build: Build, reference: Callable[..., tuple[np.ndarray, ...]], dtype: str
) -> None:
    """A launch for each shape: rows are read once, and nothing that is reduced passes through memory."""
    arrays = [numbers(3, 9, 36).astype(dtype), numbers(1, 1, 36).astype(dtype)]
    func = prim_func(build, arrays)
    outputs = [np.full([int(n) for n in each.ty.shape], np.nan, dtype) for each in func.params[2:]]
    kernels = generate_kernels("kernel", emit_reductions(func, A100), "sm_80")
    counts = run_kernels(kernels, [*arrays, *outputs], ORDERS)
    wanted = {each.shape: each for each in reference(*(each.astype(np.float64) for each in arrays))}
    rtol = {"float32": 1e-5, "float16": 2**-10}[dtype]
    for output in outputs:
        np.testing.assert_allclose(output, wanted[output.shape], rtol=rtol, atol=rtol / 10)
    assert len(kernels.launches) == len(outputs) == 2
    assert not kernels.workspaces
    assert sum(each.load_bytes for each in counts) < 2 * arrays[0].nbytes


def test_a_short_reduction_is_one_launch() -> None:
    func = prim_func(lambda b, x: op.max(x, 0), [numbers(400, 8)])
    assert len(generate_kernels("kernel", emit_reductions(func, A100), "sm_80").launches) == 1


@pytest.mark.parametrize("factor", [0, 1])
def test_two_parts_of_one_tensor_are_read_where_each_lies(factor: int) -> None:
    x = numbers(3, 50, 202)

    def gated(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        one, other = (b.emit(op.strided_slice(x, [2], [begin], [begin + 101])) for begin in (0, 101 * factor))
        return op.sum(b.emit(op.multiply(one, other)), 1)

    wide = x.astype(np.float64)
    expected = (wide[..., :101] * wide[..., 101 * factor :][..., :101]).sum(1)
    np.testing.assert_allclose(run(gated, x)[0], expected, rtol=1e-5, atol=1e-5)


def test_nan_passes_in_a_maximum() -> None:
    x = numbers(4, 6)
    x[1, 2] = np.nan
    done = run(lambda b, x: op.max(x, 0), x)[0]
    np.testing.assert_array_equal(np.isnan(done), np.arange(6) == 2)


def test_integers_are_counted_exactly() -> None:
    x = np.random.default_rng(2232).integers(-9, 9, (5, 8)).astype(np.int32)
    np.testing.assert_array_equal(run(lambda b, x: op.sum(x, 0), x)[0], x.sum(0))


def test_narrow_numbers_are_summed_in_float32_and_rounded_once() -> None:
    x = numbers(300, 16).astype(np.float16)
    done, counts = run(lambda b, x: op.sum(x, 0), x)
    np.testing.assert_allclose(done.astype(np.float64), x.astype(np.float64).sum(0), rtol=2**-10, atol=2**-14)
    assert counts.wide_bytes == x.nbytes + done.nbytes


def test_other_results_are_read_by_16_bytes_at_most() -> None:
    """Sums in float32 that an earlier launch left, behind extremes of float16, of which eight are one access."""
    x, y = (numbers(30, 320).astype("float16") for _ in range(2))

    def both(b: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return op.add(b.emit(op.sum(x, 0)), b.emit(op.max(y, 0)))

    wanted = x.astype(np.float64).sum(0) + y.astype(np.float64).max(0)
    np.testing.assert_allclose(run_several(both, x, y).astype(np.float64), wanted, rtol=2**-10, atol=2**-14)


def test_float64_is_declined() -> None:
    with pytest.raises(Declined, match="it computes in float64"):
        run(lambda b, x: op.sum(op.astype(x, "float64"), 0), numbers(4, 8))


def in_groups(
    groups: int, b: relax.BlockBuilder, x: relax.Expr, w: relax.Expr, y: relax.Expr, **how: object
) -> relax.Expr:
    """Return relu(convolution + y), of weights H, W, I, O."""
    made = b.emit(op.permute_dims(w, [3, 2, 0, 1]))
    (lower,) = LOWERINGS["relax.nn.conv2d"]
    layouts = {"data_layout": "NHWC", "kernel_layout": "OIHW"}
    sums = lower.apply(b, b.normalize(op.nn.conv2d(x, made, groups=groups, **layouts, **how)))
    return op.nn.relu(op.add(b.normalize(sums), y))


def in_groups_in_float64(
    groups: int, x: np.ndarray, w: np.ndarray, y: np.ndarray, *, stride: int = 1, border: int = 0, distance: int = 1
) -> np.ndarray:
    padded = np.pad(x.astype(np.float64), ((0, 0), (border, border), (border, border), (0, 0)))
    images, height, width, channels = padded.shape
    made = [(size - distance * (w.shape[0] - 1) - 1) // stride + 1 for size in (height, width)]
    sums = np.zeros((images, *made, w.shape[3]))
    for at in np.ndindex(*w.shape[:2]):
        rows, columns = (
            slice(tap * distance, tap * distance + (many - 1) * stride + 1, stride)
            for tap, many in zip(at, made, strict=True)
        )
        read = padded[:, rows, columns].reshape(images, *made, groups, channels // groups)
        taps = w[at].astype(np.float64).reshape(channels // groups, groups, -1)
        sums += np.einsum("nyxgi,igo->nyxgo", read, taps).reshape(sums.shape)
    return np.maximum(sums + y.astype(np.float64), 0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_random_convolutions_in_groups_are_what_float64_says(dtype: str) -> None:
    """Of tiles that are cut on all sides, borders, steps, distances of taps, and channels that no access divides."""
    random = np.random.default_rng({"float32": 2243, "float16": 2244, "bfloat16": 2245}[dtype])
    for _ in range(3):
        images, height, width, groups, depth, made, window, stride, border, distance = (
            int(n) for n in random.integers((1, 5, 5, 2, 1, 2, 1, 1, 0, 1), (3, 13, 13, 6, 13, 13, 4, 3, 2, 3))
        )
        how = {"strides": (stride, stride), "padding": (border,) * 4, "dilation": (distance, distance)}
        shapes = ((images, height, width, groups * depth), (window, window, depth, groups * made), (groups * made,))
        x, w, y = (numbers(*shape).astype(dtype) for shape in shapes)
        done, counts = run(partial(in_groups, groups, **how), x, w, y)
        wanted = in_groups_in_float64(groups, x, w, y, stride=stride, border=border, distance=distance)
        rtol = {"float32": 1e-5, "float16": 2**-10, "bfloat16": 2**-7}[dtype]
        np.testing.assert_allclose(done.astype(np.float64), wanted, rtol=rtol, atol=1e-4, err_msg=f"{shapes}, {how}")
        assert counts.worst_conflict <= 4


@pytest.mark.parametrize(("dtype", "shape", "window"), [
    ("float32", (1, 14, 14, 136), 1), ("float32", (1, 7, 7, 32), 3), ("float16", (1, 12, 12, 80), 1),
    ("float16", (1, 14, 14, 136), 1), ("float16", (1, 7, 10, 24), 3),
])  # fmt: skip
def test_convolutions_in_groups_read_full_sectors_and_few_of_them(
    dtype: str, shape: tuple[int, ...], window: int
) -> None:
    """Blocks bring the image once, or what is under the windows of a tile, and weights for several pixels."""
    channels, border = shape[3], window // 2
    x, w, y = (
        numbers(*each).astype(dtype) for each in (shape, (window, window, channels // 4, channels), (channels,))
    )
    done, counts = run(partial(in_groups, 4, padding=(border,) * 4), x, w, y)
    tolerance = {"float32": 1e-4, "float16": 2**-9}[dtype]
    wanted = in_groups_in_float64(4, x, w, y, border=border)
    np.testing.assert_allclose(done.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)
    assert counts.sector_share >= 0.95
    of_each_pixel = (w.size * shape[1] * shape[2] + (1 + window**2) * x.size) * x.itemsize
    assert counts.load_bytes + counts.store_bytes < 0.8 * of_each_pixel


def test_what_is_behind_a_convolution_in_groups_is_read_by_16_bytes_at_most() -> None:
    """Numbers of float32 behind one of float16: a thread has four channels, not the eight of an access of float16."""

    def scaled(b: relax.BlockBuilder, x: relax.Expr, w: relax.Expr, y: relax.Expr, scale: relax.Expr) -> relax.Expr:
        return op.astype(op.multiply(op.astype(b.emit(in_groups(4, b, x, w, y)), "float32"), scale), "float16")

    x, w, y = (numbers(*shape).astype("float16") for shape in ((1, 6, 8, 64), (1, 1, 16, 64), (64,)))
    scale = numbers(64)
    done, counts = run(scaled, x, w, y, scale)
    np.testing.assert_allclose(done, in_groups_in_float64(4, x, w, y) * scale, rtol=2**-9, atol=2**-9)
    assert counts.sector_share >= 0.95


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("shape", "window", "stride"), [
    ((1, 3, 48, 88), 5, 1), ((1, 2, 48, 200), 5, 1), ((2, 12, 31, 12), 3, 2), ((1, 5, 20, 68), 3, 1),
    ((1, 4, 64, 104), 5, 2),
])  # fmt: skip
def test_convolutions_by_channels_that_no_sector_divides_read_full_sectors(
    shape: tuple[int, ...], window: int, stride: int, dtype: str
) -> None:
    """Weights come into shared memory as the image does: of 88 float16 each other row begins inside of a sector."""
    channels, border = shape[3], window // 2
    x, w, y = (numbers(*each).astype(dtype) for each in (shape, (window, window, 1, channels), (channels,)))
    how = {"padding": (border,) * 4, "strides": (stride, stride)}
    done, counts = run(partial(in_groups, channels, **how), x, w, y)
    tolerance = {"float32": 1e-5, "float16": 2**-10, "bfloat16": 2**-7}[dtype]
    wanted = in_groups_in_float64(channels, x, w, y, stride=stride, border=border)
    np.testing.assert_allclose(done.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)
    assert counts.sector_share >= 0.95


def test_what_is_no_convolution_in_groups_keeps_its_own_loops() -> None:
    """One by channels, whose neighbours have channels of their own, and one whose zeros do not end with the image."""
    x, y = numbers(1, 6, 6, 8), numbers(8)
    own, several = numbers(3, 3, 1, 8), numbers(1, 1, 4, 8)

    def sums(build: Build, *arrays: np.ndarray) -> list[object]:
        parts = read_reductions(prim_func(build, arrays))
        return [grouped_sum(inlined_stage(stage, parts.elementwise)) for stage in parts.reductions]

    def of_padded(b: relax.BlockBuilder, *given: relax.Expr) -> relax.Expr:
        x, *others = given
        left = b.emit(op.nn.pad(b.emit(op.strided_slice(x, [1], [0], [4])), [0, 0, 0, 2, 0, 0, 0, 0]))
        return in_groups(2, b, left, *others)

    assert sums(partial(in_groups, 8, padding=(1,) * 4), x, own, y) == [None]
    assert sums(of_padded, x, several, y) == [None]
    assert sums(partial(in_groups, 2), x, several, y) != [None]
