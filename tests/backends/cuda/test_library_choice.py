"""A library or our own kernel: what is estimated to be the faster one, and the library where both are the same."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from backends.cuda.devices import A100, H100, CudaDevice
from backends.cuda.schedule import schedule
from backends.tensorir.result import Scheduled
from tests.backends.cpu.kernels.memory_bound import Build, prim_func
from tests.backends.cuda.test_matmul_choice import convolved


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


def convolution(
    device: CudaDevice, libraries: tuple[str, ...], dtype: str = "float16", *, taps: int = 3, tfloat32: bool = False
) -> Scheduled:
    """Return the kernel of a convolution of 32 images of 28 x 28 x 256."""
    arrays = [np.zeros((32, 28, 28, 256), dtype), np.zeros((256, taps, taps, 256), dtype)]
    return schedule(prim_func(convolved, arrays), device, tfloat32=tfloat32, libraries=libraries)


def test_convolutions_are_chosen_alike() -> None:
    ours, library = (convolution(H100, names) for names in ((), ("cudnn",)))
    assert (ours.template, library.template) == ("product", "cudnn")
    assert 1 < ours.cycles / library.cycles < 1 / H100.mma_share
    given = ("float32", True, "cudnn"), ("float32", False, "product"), ("bfloat16", False, "cudnn")
    for dtype, tfloat32, taken in given:
        found = convolution(A100, ("cudnn",), dtype, tfloat32=tfloat32)
        assert found.template == taken
        assert ("cudnn declined: cuDNN ranks no engine for float32" in found.note) == (taken == "product")


def test_of_several_libraries_the_first_that_is_named_is_taken() -> None:
    for names in (("cublaslt", "cudnn"), ("cudnn", "cublaslt")):
        assert convolution(H100, names, taps=1).template == names[0]
        assert convolution(H100, names).template == "cudnn"
