"""A bounded part of what `prove` finds of all kernels: machine code of a few, which neither spills nor is too large.

It takes NVRTC or nvcc, and reads the cubins itself; ptxas is not asked.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from backends.cuda.codegen.device_code import generate_kernels
from backends.cuda.devices import DEVICES
from backends.cuda.lowerings import LOWERINGS
from backends.cuda.runtime.cubin import read_resources
from backends.cuda.schedule import schedule
from tests.backends.cpu.kernels.memory_bound import prim_func
from tests.backends.cuda.test_attention_kernels import attention
from tests.backends.cuda.toolkit import WHY_NO_CUBIN, cubin_of

pytestmark = pytest.mark.skipif(bool(WHY_NO_CUBIN), reason=WHY_NO_CUBIN)


def layer(b: relax.BlockBuilder, x: relax.Expr, w: relax.Expr, bias: relax.Expr) -> relax.Expr:
    return op.nn.relu(op.add(op.matmul(x, w), bias))


def convolution(b: relax.BlockBuilder, x: relax.Expr, w: relax.Expr) -> relax.Expr:
    (lower,) = LOWERINGS["relax.nn.conv2d"]
    call = op.nn.conv2d(x, w, padding=(1, 1, 1, 1), data_layout="NHWC", kernel_layout="OIHW")
    return lower.apply(b, b.normalize(call))


def norm(b: relax.BlockBuilder, x: relax.Expr, *parts: relax.Expr) -> relax.Expr:
    return op.nn.layer_norm(op.add(x, x), *parts, -1)


@pytest.mark.parametrize(
    ("template", "build", "shapes", "dtype", "arch"),
    [
        ("product", layer, [(512, 512), (512, 512), (512,)], "float16", "sm_80"),
        ("product", layer, [(512, 512), (512, 512), (512,)], "float32", "sm_90"),
        ("product", layer, [(40, 120), (120, 6625), (6625,)], "float32", "sm_90"),  # ppocr_rec: see `_MANY_REGISTERS`
        ("product", convolution, [(1, 29, 29, 64), (96, 64, 3, 3)], "float32", "sm_80"),
        ("attention", attention(), [(16, 512, 64)] * 3, "float16", "sm_80"),
        ("attention", attention(), [(16, 512, 64)] * 3, "bfloat16", "sm_90"),
        ("rows", norm, [(64, 768), (768,), (768,)], "float32", "sm_90"),
    ],
)
def test_kernels_do_not_spill_and_fit_their_device(
    template: str,
    build: Callable[..., relax.Expr],
    shapes: list[tuple[int, ...]],
    dtype: str,
    arch: str,
    tmp_path: Path,
) -> None:
    device = DEVICES[arch]
    made = schedule(prim_func(build, [np.zeros(shape, np.dtype(dtype)) for shape in shapes]), device)
    assert made.template == template
    kernel = generate_kernels("kernel", made.func, arch).launches[0].kernel
    taken = read_resources(cubin_of(kernel, arch, tmp_path), kernel.symbol)
    assert taken is not None
    assert taken.local_bytes == 0
    assert device.blocks_at_once(kernel.threads, taken.registers, kernel.shared_bytes + taken.shared_bytes) >= 1
