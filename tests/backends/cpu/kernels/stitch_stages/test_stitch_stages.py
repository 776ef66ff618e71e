"""The memory-bound templates against numpy in float64, over shapes with every kind of edge."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.relax import op

from backends.cpu.kernels.stitch_stages.read import read_stage_group
from fusion.declined import Declined
from fusion.structural import find
from tests.backends.cpu.kernels.memory_bound import prim_func, run, run_different, schedule, schedule_func
from tests.targets import AVX2

Arrays = Sequence[np.ndarray]
# not multiples of 16 or 8, size 1 axes, one vector, less than a vector, big enough to be parallel
SHAPES_2D = [(1, 1), (3, 1), (1, 17), (5, 2), (4, 16), (7, 19), (3, 64), (2, 197), (64, 197), (130, 768)]
SHAPES_4D = [(1, 1, 1, 1), (1, 3, 5, 7), (2, 5, 1, 16), (1, 16, 7, 7), (1, 24, 9, 33), (1, 32, 28, 28), (2, 19, 3, 37)]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(0, 1, shape).astype("float32")


def check(
    build: Callable, arrays: Arrays, expected: np.ndarray | Sequence[np.ndarray], tolerance: float = 2e-6, **how: bool
) -> str:
    """Compare with the float64 result on the register widths of AVX-512, AVX2 and NEON; return the template's name."""
    expected = expected if isinstance(expected, list | tuple) else [expected]
    targets = (("llvm", 2), (AVX2, 3), ("llvm -mcpu=nehalem", 2))
    func = prim_func(build, arrays)
    kernels = [schedule_func(func, target, threads) for target, threads in targets]
    for outputs in run_different(kernels, arrays, **how):
        for got, want in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * max(1, np.abs(want).max(initial=0)))
    return kernels[-1].template


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype("float64")


def test_what_folds_lanes_does_not_grow_exponentially() -> None:
    """TVM's simplifier puts the value of a variable wherever it is read: a maximum over 16 lanes had 500 shuffles."""
    kernel = schedule(lambda b, v: op.nn.softmax(v), [np.zeros((8, 64), np.float32)], "llvm -mcpu=skylake-avx512")
    simple = tirx.transform.StmtSimplify()(tvm.IRModule({"f": kernel.func}))
    assert 0 < len(find(simple["f"].body, tirx.Shuffle)) <= 24


@pytest.mark.parametrize("width", [3, 8, 41, 1000])
@pytest.mark.parametrize("build", [op.nn.softmax, op.nn.log_softmax])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_edges_of_softmax(build: Callable, width: int) -> None:
    """Rows with infinities, NaN of any bits, subnormal, equal, huge and distant elements."""
    rows = normal(14, width)
    place = width // 2
    rows[:6, place] = np.array([0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0x7F800000, 0xFF800000, 0x00000001], "uint32").view(
        "float32"
    )
    rows[6], rows[7], rows[8], rows[9] = -np.inf, 0, np.finfo("float32").max, -3e38
    rows[10] = np.where(np.arange(width) == place, 0, -np.linspace(80, 110, width))
    rows[11] = np.where(np.arange(width) == place, 0, -np.float32(1e30))
    rows[12], rows[13] = rows[12] * 1e-42, rows[13] + 1e6
    shifted = wide(rows) - rows.max(1, keepdims=True)
    grown = np.exp(shifted)
    total = grown.sum(1, keepdims=True)
    check(lambda b, v: build(v, 1), [rows], grown / total if build is op.nn.softmax else shifted - np.log(total))


@pytest.mark.parametrize("shape", SHAPES_2D)
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax(shape: tuple[int, int], axis: int) -> None:
    x = normal(*shape) * 5
    grown = np.exp(wide(x) - x.max(axis, keepdims=True))
    name = check(lambda b, v: op.nn.softmax(v, axis), [x], grown / grown.sum(axis, keepdims=True))
    assert name == "stitch_stages"


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("width", [128, 1024, 130, 257, 41, 12, 7])
def test_exponentials_wait_in_the_result(width: int, threads: int) -> None:
    """Also where the last vector of a row overlaps the one before, and reads what that has stored to."""
    x = normal(300, width) * 5
    kernel = schedule(lambda b, v: op.nn.softmax(op.add(v, v)), [x], AVX2, threads)
    assert f"T.alloc_buffer(({width},))" not in kernel.func.script()
    grown = np.exp(2 * (wide(x) - x.max(1, keepdims=True)))
    check(lambda b, v: op.nn.softmax(op.add(v, v)), [x], grown / grown.sum(1, keepdims=True))


@pytest.mark.parametrize("shape", SHAPES_2D)
def test_log_softmax_with_a_prologue_and_an_epilogue(shape: tuple[int, int]) -> None:
    x, y = normal(*shape), normal(*shape, seed=1)
    total = wide(x) + y
    shifted = total - total.max(1, keepdims=True)
    expected = np.tanh(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))
    check(lambda b, u, v: op.tanh(op.nn.log_softmax(op.add(u, v))), [x, y], expected)


@pytest.mark.parametrize("shape", SHAPES_2D)
def test_layer_norm_of_a_residual_sum_that_is_also_an_output(shape: tuple[int, int]) -> None:
    x, y, gamma, beta = normal(*shape), normal(*shape, seed=1), normal(shape[1], seed=2), normal(shape[1], seed=3)
    total = wide(x) + y
    centered = total - total.mean(1, keepdims=True)
    expected = centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5) * gamma + beta

    def build(b: relax.BlockBuilder, u: relax.Var, v: relax.Var, g: relax.Var, s: relax.Var) -> relax.Expr:
        residual = b.emit(op.add(u, v))
        return relax.Tuple([residual, b.emit(op.nn.layer_norm(residual, g, s, axes=[-1], epsilon=1e-5))])

    check(build, [x, y, gamma, beta], [total, expected], tolerance=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_variances_lie_along_the_row_where_its_elements_are_computed_once(dtype: str) -> None:
    """The mean, which is constant along the row, counted as often as it is read, the row as often as it is computed."""
    x, gamma, beta = normal(1, 3, 5, 128).astype(dtype), normal(128, seed=2), normal(128, seed=3)

    def build(b: relax.BlockBuilder, v: relax.Var, g: relax.Var, s: relax.Var) -> relax.Expr:
        rows = op.astype(b.emit(op.reshape(v, (1, 15, 128))), "float32")
        return op.nn.layer_norm(b.emit(rows), g, s, axes=[-1], epsilon=1e-5)

    centered = wide(x.reshape(1, 15, 128)) - wide(x).reshape(1, 15, 128).mean(2, keepdims=True)
    expected = centered / np.sqrt((centered**2).mean(2, keepdims=True) + 1e-5) * gamma + beta
    check(build, [x, gamma, beta], expected, tolerance=1e-5)
    kernel = schedule(build, [x, gamma, beta], "llvm -mcpu=skylake-avx512")
    assert "range(T.int64(128))" not in kernel.func.script()


@pytest.mark.parametrize(
    ("shape", "axes", "name"),
    [
        (shape, axes, ("sum", "mean", "max", "min")[(i + j) % 4])  # each with each shape, and with all of the axes
        for i, shape in enumerate(SHAPES_4D) for j, axes in enumerate(([1], [2, 3], [1, 2], [0, 1, 2, 3], [3]))
    ],
)  # fmt: skip
def test_reductions_over_any_axes(shape: tuple[int, ...], axes: list[int], name: str) -> None:
    x = normal(*shape) + np.float32({"max": -5, "min": 5}.get(name, 0))  # of which no 0 of a padding is the result
    expected = getattr(np, name)(wide(x), axis=tuple(axes))
    check(lambda b, v: getattr(op, name)(v, axes), [x], expected)


@pytest.mark.parametrize("shape", SHAPES_4D)
@pytest.mark.parametrize("groups", [1, None])
def test_group_and_instance_norm(shape: tuple[int, ...], groups: int | None) -> None:
    x, gamma, beta = normal(*shape), normal(shape[1], seed=1), normal(shape[1], seed=2)
    axes = (1, 2, 3) if groups else (2, 3)
    centered = wide(x) - x.mean(axes, keepdims=True, dtype="float64")
    unit = centered / np.sqrt((centered**2).mean(axes, keepdims=True) + 1e-5)
    expected = unit * gamma[:, None, None] + beta[:, None, None]

    def build(b: relax.BlockBuilder, v: relax.Var, g: relax.Var, s: relax.Var) -> relax.Expr:
        if groups:
            return op.nn.group_norm(v, g, s, groups, 1, [2, 3], epsilon=1e-5)
        return op.nn.instance_norm(v, g, s, 1, [2, 3], epsilon=1e-5)

    check(build, [x, gamma, beta], expected, tolerance=1e-5)


@pytest.mark.parametrize("shape", SHAPES_4D)
def test_chains_with_broadcasts(shape: tuple[int, ...]) -> None:
    x, bias = normal(*shape), normal(shape[1], 1, 1, seed=1)
    value = wide(x) + bias
    value = value / (1 + np.exp(-value))
    value = value / (1 + np.exp(-value))
    check(lambda b, v, c: op.nn.silu(op.nn.silu(op.add(v, c))), [x, bias], value)


@pytest.mark.parametrize("shape", SHAPES_4D)
@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 2, 3), (3, 2, 1, 0)])
def test_transposes_with_an_epilogue(shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    x = normal(*shape)
    check(lambda b, v: op.nn.relu(op.permute_dims(v, order)), [x], np.maximum(x.transpose(order), 0))


@pytest.mark.parametrize("dtype", ["float16", "int16"])
@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2)])
def test_transposes_of_two_bytes_are_turned_in_registers(dtype: str, order: tuple[int, ...]) -> None:
    for shape in SHAPES_4D:
        x = (normal(*shape) * 50).astype(dtype)
        check(lambda b, v: op.permute_dims(op.add(v, v), order), [x], 2 * x.transpose(order))
    kernel = schedule(lambda b, v: op.permute_dims(v, order), [normal(1, 32, 7, 32).astype(dtype)])
    assert "T.Shuffle" in kernel.func.script()


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (2, 2, 0), (3, 1, 1)])
@pytest.mark.parametrize("channels", [3, 16, 37])
def test_max_pool(layout: str, kernel: int, stride: int, padding: int, channels: int) -> None:
    x = normal(1, 11, 13, channels)
    padded = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (1, 2))[:, ::stride, ::stride]
    expected = windows.max((-1, -2))
    if layout == "NCHW":
        x, expected = np.ascontiguousarray(x.transpose(0, 3, 1, 2)), expected.transpose(0, 3, 1, 2)
    size = (kernel, kernel), (stride, stride), (padding,) * 4
    check(lambda b, v: op.nn.max_pool2d(v, *size, layout=layout), [x], expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concat_of_computed_parts(axis: int) -> None:
    shapes = [[3, 5, 18], [3, 5, 18], [3, 5, 18]]
    for shape, extent in zip(shapes, (1, 19, 35), strict=True):
        shape[axis] = extent
    parts = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    expected = np.concatenate([wide(parts[0]), np.tanh(wide(parts[1])), wide(parts[2])], axis)
    check(lambda b, u, v, w: op.concat([u, op.tanh(v), w], axis), parts, expected)


@pytest.mark.parametrize("shape", [(3, 17), (5, 40), (1, 1)])
def test_pad_split_slice_gather(shape: tuple[int, int]) -> None:
    x = normal(*shape)
    check(lambda b, v: op.nn.pad(op.exp(v), (1, 2, 3, 4)), [x], np.pad(np.exp(wide(x)), ((1, 2), (3, 4))))
    check(lambda b, v: op.strided_slice(v, [1], [0], [shape[1]], [2]), [x], x[:, ::2])
    indices = np.array([0, shape[0] - 1, 0, 0], "int64")
    check(lambda b, v, i: op.take(v, i, axis=0), [x, indices], x[indices])


def test_split_makes_several_outputs() -> None:
    x = normal(5, 42)
    check(lambda b, v: b.emit(op.split(v, 3, axis=1)), [x], np.split(x, 3, 1))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_resize_nearest(layout: str) -> None:
    x = normal(1, 5, 7, 19) if layout == "NHWC" else normal(1, 19, 5, 7)
    axes = (1, 2) if layout == "NHWC" else (2, 3)
    expected = x.repeat(2, axes[0]).repeat(2, axes[1])
    options = {"coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"}

    def build(b: relax.BlockBuilder, v: relax.Var) -> relax.Expr:
        return op.image.resize2d(v, (10, 14), layout=layout, method="nearest_neighbor", **options)

    check(build, [x], expected)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int32", "int64", "uint8"])
def test_element_types(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 9, (7, 37)).astype(dtype) for _ in range(2))
    check(lambda b, u, v: op.maximum(op.add(u, v), v), [x, y], np.maximum(x + y, y))
    check(lambda b, u, v: op.where(op.greater(u, v), u, v), [x, y], np.maximum(x, y))
    check(lambda b, u, v: op.less(u, v), [x, y], x < y)


@pytest.mark.parametrize("width", [4, 8, 16, 24, 64])
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "uint8"), ("int8", "int8"), ("uint8", "uint8")])
def test_sums_of_products_of_bytes(width: int, dtypes: tuple[str, str]) -> None:
    """LLVM's `vpdpbusd` summed the first four of 8 and of 16 products."""
    x, y = (np.random.default_rng(width).integers(0, 256, (3, width)).astype(dtype) for dtype in dtypes)
    one, other = (each.astype("int32") for each in (x, y))

    def build(b: relax.BlockBuilder, u: relax.Var, v: relax.Var) -> relax.Expr:
        return op.sum(op.multiply(op.astype(u, "int32"), op.astype(v, "int32")), [1])

    check(build, [x, y], (one * other).sum(1), all_optimised=True)


def test_float16_sums_are_accumulated_in_float32() -> None:
    x = np.full((2, 4096), 1.001, "float16")
    check(lambda b, v: op.mean(v, [1]), [x], wide(x).mean(1), tolerance=1e-3)
    check(lambda b, v: op.nn.softmax(v), [x], np.full(x.shape, 1 / 4096), tolerance=1e-3)


def test_scalars_and_empty_tensors() -> None:
    check(lambda b, v: op.exp(v), [np.float32(0.5).reshape(())], np.exp(0.5))
    check(lambda b, v: op.exp(v), [np.zeros((3, 0, 4), "float32")], np.zeros((3, 0, 4)))


def test_what_is_not_read_as_stages_falls_back() -> None:
    x = normal(5, 41)
    assert check(lambda b, v: op.cumsum(v, 1), [x], x.cumsum(1), tolerance=1e-5) == "fallback_loops"
    with pytest.raises(Declined, match="the loops are scheduled"):
        read_stage_group(prim_func(lambda b, v: op.cumsum(v, 1), [x]))


def test_nan_and_infinity_pass_through() -> None:
    x = np.array([[np.nan, 1, np.inf, -np.inf] * 5], "float32")
    kernel = schedule(lambda b, v: op.add(op.tanh(v), v), [x])
    np.testing.assert_array_equal(run(kernel, [x])[0], np.tanh(x) + x)


@pytest.mark.parametrize("build", [op.nn.softmax, op.nn.gelu])
def test_small_tensors_are_serial_and_large_ones_parallel(build: Callable) -> None:
    small, large = normal(8, 16), normal(512, 512)
    assert "T.parallel" not in schedule(lambda b, v: build(v), [small]).func.script()
    assert "T.parallel" in schedule(lambda b, v: build(v), [large]).func.script()
