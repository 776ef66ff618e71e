"""cuBLASLt or our own kernel: what is estimated to be the faster one, and the library where both are the same."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from backends.cuda.devices import A100, H100, CudaDevice
from backends.cuda.schedule import schedule
from backends.tensorir.result import Scheduled
from tests.backends.cpu.kernels.memory_bound import Build, prim_func


def matmul(b: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    return op.matmul(x, y)


def made(
    sizes: tuple[int, int, int], dtype: str, device: CudaDevice, libraries: tuple[str, ...], build: Build = matmul
) -> Scheduled:
    rows, columns, depth = sizes
    arrays = [np.zeros((rows, depth), dtype), np.zeros((depth, columns), dtype)]
    return schedule(prim_func(build, arrays), device, libraries=libraries)


@pytest.mark.parametrize(
    ("sizes", "dtype", "device", "taken"),
    [
        ((4096, 4096, 4096), "float16", H100, "cublaslt"),  # what `wgmma` multiplies in two thirds of the time
        ((64, 4096, 4096), "float16", H100, "cublaslt"),  # weights stream by: no difference
        ((1024, 1024, 1024), "float32", A100, "cublaslt"),
        ((512, 768, 3072), "float32", A100, "product"),  # blocks that share all steps, 7%
    ],
)
def test_the_faster_one_is_taken(sizes: tuple[int, int, int], dtype: str, device: CudaDevice, taken: str) -> None:
    found, own = (made(sizes, dtype, device, libraries) for libraries in (("cublaslt",), ()))
    assert found.template == taken
    assert 0 < found.cycles <= own.cycles
    assert (own.template, own.note) == ("product", "")
    assert ("cublaslt declined: it is estimated to take 1." in found.note) == (taken == "product")


def test_tensor_cores_without_wgmma_make_the_difference() -> None:
    ours, library = (made((4096, 4096, 4096), "float16", H100, names).cycles for names in ((), ("cublaslt",)))
    assert 1.1 < ours / library < 1 / H100.mma_share  # shared memory bounds the library's
    ours, library = (made((4096, 4096, 4096), "float16", A100, names).cycles for names in ((), ("cublaslt",)))
    assert ours == library


def test_what_the_library_has_no_epilogue_for_is_ours() -> None:
    found = made((4096, 4096, 4096), "float16", H100, ("cublaslt",), lambda b, x, y: op.sigmoid(op.matmul(x, y)))
    assert found.template == "product"
