"""NVRTC and ptxas take the CUDA C that the generator writes, where they are installed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes  # noqa: F401, so that NumPy knows bfloat16
import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from backends.cuda.codegen.device_code import generate_kernels
from backends.cuda.codegen.generate import generate_kernel
from backends.cuda.codegen.nvrtc import assemble
from backends.cuda.devices import A100, DEVICES
from backends.cuda.kernels.attention.emit import emit_attention
from backends.cuda.kernels.attention.plan import points
from backends.cuda.kernels.attention.read import read_attention
from backends.cuda.kernels.matmul.choose import FLOAT_UNITS, TENSOR_CORES
from backends.cuda.kernels.matmul.kernels import emit_matmul
from backends.cuda.kernels.matmul.plan import TileShape, cores_of
from backends.cuda.kernels.pointwise.emit import emit_pointwise
from backends.cuda.kernels.rows.emit import emit_rows
from backends.cuda.lowerings import LOWERINGS
from backends.cuda.runtime.cubin import CubinResources, read_resources
from backends.cuda.schedule import schedule
from fusion.errors import InternalError, NotInstalledError
from tests.backends.cpu.kernels.memory_bound import prim_func
from tests.backends.cuda.multiplied import plan_of
from tests.backends.cuda.test_attention_kernels import attention
from tests.backends.cuda.test_emulator import reversed_exponentials
from tests.backends.cuda.toolkit import WHY_NOT, resources_of

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_kernel_is_assembled_without_spills(arch: str, tmp_path: Path) -> None:
    used = resources_of(generate_kernel(reversed_exponentials, "reversed", arch), arch, tmp_path)
    assert 0 < used.registers <= 64
    assert used.spilled_bytes == 0
    assert used.shared_bytes == 256 * 4
    kernel = generate_kernel(reversed_exponentials, "reversed", arch)
    own = read_resources(assemble(kernel.source, arch).cubin, kernel.symbol)
    assert own == CubinResources(used.registers, used.shared_bytes, used.spilled_bytes)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(4, 1024), (7, 147)])
def test_an_elementwise_kernel_keeps_its_values_in_registers(
    shape: tuple[int, ...], dtype: str, tmp_path: Path
) -> None:
    x = np.zeros(shape, np.dtype(dtype))
    func = prim_func(lambda b, x: op.multiply(op.sigmoid(x), op.maximum(x, op.negative(x))), [x])
    used = resources_of(generate_kernel(emit_pointwise(func), "pointwise", "sm_80"), "sm_80", tmp_path)
    assert used.spilled_bytes == used.shared_bytes == 0
    assert A100.occupancy(256, used.registers) == 1.0


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(8, 1024), (8, 1023), (5, 34)])
def test_rows_are_kept_in_registers(shape: tuple[int, ...], dtype: str, tmp_path: Path) -> None:
    x, gamma = np.zeros(shape, np.dtype(dtype)), np.zeros(shape[-1:], np.dtype(dtype))
    for func in (
        prim_func(lambda b, x: op.nn.softmax(op.multiply(x, x), -1), [x]),
        prim_func(lambda b, x, y, *parts: op.nn.layer_norm(op.add(x, y), *parts, -1), [x, x, gamma, gamma]),
    ):
        kernel = generate_kernel(emit_rows(func, A100), "rows", "sm_80")
        used = resources_of(kernel, "sm_80", tmp_path)
        assert used.spilled_bytes == used.shared_bytes == 0
        assert A100.occupancy(kernel.threads, used.registers, kernel.shared_bytes) >= 0.25


_PRODUCTS = [
    *(("float16", False, tile) for tile in TENSOR_CORES.tiles),
    *(("float32", True, tile) for tile in TENSOR_CORES.tiles[::3]),
    *(("float32", False, tile) for tile in FLOAT_UNITS.tiles),
]  # fmt: skip


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("dtype", "tfloat32", "tile"), _PRODUCTS, ids=str)
def test_each_tile_of_a_product_has_the_registers_that_the_estimate_says(
    dtype: str, tfloat32: bool, tile: tuple[int, int, int, int], arch: str, tmp_path: Path
) -> None:
    x, bias = np.zeros((1024, 1024), np.dtype(dtype)), np.zeros(1024, np.dtype(dtype))
    rows, columns, warp_rows, warp_columns = tile
    func = prim_func(lambda b, x, y, bias: op.nn.relu(op.add(op.matmul(x, y), bias)), [x, x, bias])
    for depth in (64, 128):
        point = TileShape(rows, columns, depth // x.itemsize, warp_rows, warp_columns, stages=3)
        plan = plan_of(func, point, tfloat32=tfloat32)
        (kernel,) = emit_matmul(func, plan)
        used = resources_of(generate_kernel(kernel, "product", arch), arch, tmp_path)
        assert used.spilled_bytes == used.shared_bytes == 0
        assert 0.55 < used.registers / plan.registers < 1.5


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("tile", FLOAT_UNITS.tiles, ids=str)
def test_no_tile_spills_where_rows_of_weights_are_copied_one_by_one(
    tile: tuple[int, int, int, int], arch: str, tmp_path: Path
) -> None:
    x, y, bias = np.zeros((40, 120), np.float32), np.zeros((120, 6625), np.float32), np.zeros(6625, np.float32)
    rows, columns, warp_rows, warp_columns = tile
    func = prim_func(lambda b, x, y, bias: op.nn.relu(op.add(op.matmul(x, y), bias)), [x, y, bias])
    for depth in (16, 32):
        (kernel,) = emit_matmul(func, plan_of(func, TileShape(rows, columns, depth, warp_rows, warp_columns, stages=3)))
        assert resources_of(generate_kernel(kernel, "product", arch), arch, tmp_path).spilled_bytes == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("dtype", "tile"), [("float16", tile) for tile in TENSOR_CORES.tiles[:4]] + [
    ("float32", tile) for tile in FLOAT_UNITS.tiles[:4]
])  # fmt: skip
def test_blocks_that_share_all_steps_do_not_spill(
    dtype: str, tile: tuple[int, int, int, int], arch: str, tmp_path: Path
) -> None:
    x, bias = np.zeros((1024, 1024), np.dtype(dtype)), np.zeros(1024, np.dtype(dtype))
    rows, columns, warp_rows, warp_columns = tile
    func = prim_func(lambda b, x, y, bias: op.nn.relu(op.add(op.matmul(x, y), bias)), [x, x, bias])
    point = TileShape(rows, columns, 64 // x.itemsize, warp_rows, warp_columns, stages=3, stream_blocks=27)
    plan = plan_of(func, point)
    for kernel in emit_matmul(func, plan):
        used = resources_of(generate_kernel(kernel, "product", arch), arch, tmp_path)
        assert used.spilled_bytes == used.shared_bytes == 0
        assert used.registers / plan.registers < 1.5


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_convolutions_and_reductions_do_not_spill(arch: str, tmp_path: Path) -> None:
    shapes = ((1, 29, 29, 64), (96, 64, 3, 3), (64, 1, 3, 3), (3, 3, 16, 64))
    image, dense, own, grouped = (np.zeros(shape, np.float32) for shape in shapes)
    how = {"padding": (1, 1, 1, 1), "data_layout": "NHWC", "kernel_layout": "OIHW"}
    (lower,) = LOWERINGS["relax.nn.conv2d"]

    def convolve(b: relax.BlockBuilder, x: relax.Expr, w: relax.Expr) -> relax.Expr:
        return lower.apply(b, b.normalize(op.nn.conv2d(x, w, groups=64 // int(w.ty.shape[1]), **how)))

    funcs = [
        prim_func(convolve, [image, dense]),
        prim_func(convolve, [image, own]),
        prim_func(lambda b, x, w: convolve(b, x, b.emit(op.permute_dims(w, [3, 2, 0, 1]))), [image, grouped]),
        prim_func(lambda b, x: op.nn.max_pool2d(x, (3, 3), (2, 2), layout="NHWC"), [image]),
        prim_func(lambda b, x: op.nn.softmax(x, -1), [np.zeros((64, 5000), np.float32)]),
    ]
    for func, template in zip(funcs, ["product", "reductions", "reductions", "reductions", "rows"], strict=True):
        made = schedule(func, DEVICES[arch])
        assert made.template == template
        for launch in generate_kernels("kernel", made.func, arch).launches:
            assert resources_of(launch.kernel, arch, tmp_path).spilled_bytes == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("dtype", "channels"),
    [
        *(("float16", channels) for channels in (32, 64, 80, 128, 192)),
        *((dtype, channels) for dtype in ("float32", "tfloat32") for channels in (64, 96)),
    ],
)
def test_each_tile_of_an_attention_has_the_registers_that_the_estimate_says(
    dtype: str, channels: int, arch: str, tmp_path: Path
) -> None:
    func = prim_func(attention(), [np.zeros((16, 512, channels), dtype.removeprefix("t"))] * 3)
    region = read_attention(func)
    cores = cores_of(region.scores, tfloat32=dtype == "tfloat32")
    plans = [plan for plan in points(region, cores) if plan.registers < 255 and plan.point.stages == 2]
    for plan in plans[: None if (dtype, channels) == ("float16", 64) else 1]:
        used = resources_of(generate_kernel(emit_attention(func, plan), "attention", arch), arch, tmp_path)
        assert used.spilled_bytes == used.shared_bytes == 0
        assert 0.55 < used.registers / plan.registers < 1.5


def test_an_architecture_that_nvrtc_does_not_know() -> None:
    with pytest.raises(NotInstalledError, match="makes no code for sm_19") as error:
        assemble("", "sm_19")
    assert "sm_80" in error.value.why


def test_what_is_no_cuda_c_is_an_error_with_the_text_of_the_compiler(tmp_path: Path) -> None:
    kernel = generate_kernel(reversed_exponentials, "reversed", "sm_80")
    with pytest.raises(InternalError, match="NVRTC refuses") as error:
        resources_of(replace(kernel, source=kernel.source.replace("expf", "undeclared_name")), "sm_80", tmp_path)
    assert "undeclared_name" in error.value.why
