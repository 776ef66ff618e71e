"""NVRTC and ptxas take the CUDA C that the generator writes, where they are installed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes  # noqa: F401, so that NumPy knows bfloat16
import numpy as np
import pytest
from tvm.relax import op

from backends.cuda.codegen.generate import generate_kernel
from backends.cuda.devices import A100
from backends.cuda.kernels.pointwise.emit import emit_pointwise
from backends.cuda.kernels.rows.emit import emit_rows
from tests.backends.cpu.kernels.memory_bound import prim_func
from tests.backends.cuda.test_emulator import reversed_exponentials
from tests.backends.cuda.toolkit import WHY_NOT, assemble

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_kernel_is_assembled_without_spills(arch: str, tmp_path: Path) -> None:
    used = assemble(generate_kernel(reversed_exponentials, "reversed", arch), arch, tmp_path)
    assert 0 < used.registers <= 64
    assert used.spilled_bytes == 0
    assert used.shared_bytes == 256 * 4


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(4, 1024), (7, 147)])
def test_an_elementwise_kernel_keeps_its_values_in_registers(
    shape: tuple[int, ...], dtype: str, tmp_path: Path
) -> None:
    x = np.zeros(shape, np.dtype(dtype))
    func = prim_func(lambda b, x: op.multiply(op.sigmoid(x), op.maximum(x, op.negative(x))), [x])
    used = assemble(generate_kernel(emit_pointwise(func), "pointwise", "sm_80"), "sm_80", tmp_path)
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
        used = assemble(generate_kernel(emit_rows(func), "rows", "sm_80"), "sm_80", tmp_path)
        assert used.spilled_bytes == used.shared_bytes == 0
        assert A100.occupancy(128, used.registers) >= 0.25


def test_what_is_no_cuda_c_is_an_error_with_the_text_of_the_compiler(tmp_path: Path) -> None:
    kernel = generate_kernel(reversed_exponentials, "reversed", "sm_80")
    with pytest.raises(AssertionError, match="undeclared_name"):
        assemble(replace(kernel, source=kernel.source.replace("expf", "undeclared_name")), "sm_80", tmp_path)
