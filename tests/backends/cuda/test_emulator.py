"""CUDA C that the generator writes runs on the CPU, and what no device allows is found there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm.script import tirx as T

from backends.cuda.codegen.generate import CudaKernel, generate_kernel
from tests.backends.cuda.emulator.emulate import ORDERS, WHY_NOT, EmulatedError, emulate

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@T.prim_func(s_tir=True)
def reversed_exponentials(a: T.Buffer((1024,), "float32"), b: T.Buffer((1024,), "float32")):
    shared = T.sblock_alloc_buffer((256,), "float32", scope="shared")
    for block in T.thread_binding(4, "blockIdx.x"):
        for thread in T.thread_binding(64, "threadIdx.x"):
            for lane in T.vectorized(4):
                shared[thread * 4 + lane] = T.exp(a[block * 256 + thread * 4 + lane])
            for lane in T.vectorized(4):
                b[block * 256 + thread * 4 + lane] = shared[255 - (thread * 4 + lane)]


@pytest.fixture(scope="module", params=["sm_80", "sm_90"])
def kernel(request: pytest.FixtureRequest) -> CudaKernel:
    return generate_kernel(reversed_exponentials, "reversed", request.param)


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    values = np.random.default_rng(775000).standard_normal(1024).astype(np.float32)
    return {"a": values, "b": np.full(1024, np.nan, np.float32)}


def written(body: str, threads: int = 64) -> CudaKernel:
    """Return a kernel of one block from `a` to `b` as it is written here."""
    head = 'extern "C" __global__ void k_kernel(float* __restrict__ a_ptr, float* __restrict__ b_ptr)'
    return CudaKernel(f"{head} {{ {body} }}", "k_kernel", ("a", "b"), 1, threads)


def test_a_kernel_is_what_float64_says(kernel: CudaKernel, arrays: dict[str, np.ndarray]) -> None:
    assert (kernel.blocks, kernel.threads, kernel.parameters) == (4, 64, ("a", "b"))
    done = emulate(kernel, arrays)
    expected = np.exp(arrays["a"].astype(np.float64)).reshape(4, 256)[:, ::-1].reshape(-1)
    np.testing.assert_allclose(done.arrays["b"], expected, rtol=1e-6)
    np.testing.assert_array_equal(done.arrays["a"], arrays["a"])


def test_sectors_wide_accesses_and_barriers_are_counted(kernel: CudaKernel, arrays: dict[str, np.ndarray]) -> None:
    counts = emulate(kernel, arrays, (0,)).counts
    assert counts.load_bytes == counts.store_bytes == counts.wide_bytes / 2 == 4096
    assert counts.sector_share == 1.0
    assert counts.barriers == 4 * 64
    assert counts.worst_conflict == 4  # lanes read words that are four apart


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_barrier_is_found_in_every_order(
    kernel: CudaKernel, arrays: dict[str, np.ndarray], order: int
) -> None:
    without = kernel.source.replace("__syncthreads();", "")
    assert without != kernel.source
    with pytest.raises(EmulatedError, match=r"barrier is missing|nobody wrote"):
        emulate(replace(kernel, source=without), arrays, (order,))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("if (threadIdx.x > 0) __syncthreads();", "threads that do not come"),
        ("if (threadIdx.x > 0) b_ptr[0] = __shfl_xor_sync(0xffffffffu, a_ptr[0], 1);", "threads that do not come"),
        ("b_ptr[threadIdx.x + 961] = a_ptr[0];", "stores outside of all buffers"),
        ("b_ptr[threadIdx.x] = a_ptr[(int)threadIdx.x - 1];", "loads outside of all buffers"),
        ("*(float4*)(b_ptr + threadIdx.x) = make_float4(0, 0, 0, 0);", "not aligned"),
        ("__shared__ float s[64]; b_ptr[threadIdx.x] = s[threadIdx.x];", "nobody wrote"),
        ("__shared__ float s[1]; s[0] = threadIdx.x;", "barrier is missing"),
        ("b_ptr[0] = threadIdx.x;", "differs between orders"),
    ],
)
def test_what_no_device_allows_is_an_error(arrays: dict[str, np.ndarray], body: str, error: str) -> None:
    with pytest.raises(EmulatedError, match=error):
        emulate(written(body), arrays)


def test_a_shuffle_brings_the_value_of_its_lane(arrays: dict[str, np.ndarray]) -> None:
    done = emulate(written("b_ptr[threadIdx.x] = __shfl_xor_sync(0xffffffffu, a_ptr[threadIdx.x], 5, 32);"), arrays)
    np.testing.assert_array_equal(done.arrays["b"][:64], arrays["a"][np.arange(64) ^ 5])


@pytest.mark.parametrize(("step", "share", "conflict"), [(1, 1.0, 1), (2, 0.5, 2), (8, 0.125, 8)])
def test_steps_between_lanes_cost_sectors_and_banks(
    arrays: dict[str, np.ndarray], step: int, share: float, conflict: int
) -> None:
    body = f"__shared__ float s[512]; s[threadIdx.x * {step}] = a_ptr[threadIdx.x * {step}]; "
    counts = emulate(written(body, 32), arrays).counts
    assert counts.load_bytes / (32 * counts.load_sectors) == share
    assert counts.worst_conflict == conflict
