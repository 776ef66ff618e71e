"""CUDA C that the generator writes runs on the CPU, and what no device allows is found there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm.script import tirx as T

from backends.cuda.codegen.device_functions import INSTRUCTIONS
from backends.cuda.codegen.generate import CudaKernel, generate_kernel
from tests.backends.cuda.emulator.emulate import ORDERS, WHY_NOT, EmulatedError, emulate

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@T.prim_func(s_tir=True)
def reversed_exponentials(a: T.Buffer((1024,), "float32"), b: T.Buffer((1024,), "float32")):
    for block in T.thread_binding(4, "blockIdx.x"):
        for thread in T.thread_binding(64, "threadIdx.x"):
            shared = T.alloc_buffer((256,), "float32", scope="shared")
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
    return CudaKernel(f"{INSTRUCTIONS}{head} {{ {body} }}", "k_kernel", ("a", "b"), 1, threads)


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


_COPY = "__shared__ float s[4]; if (!threadIdx.x) { copy_async<16>(s, a_ptr, 16);"


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
        (f"{_COPY} b_ptr[0] = s[0]; }}", "on its way"),
        (f"{_COPY} wait_copies<0>(); b_ptr[0] = s[0]; }}", "on its way"),
        (f"{_COPY} commit_copies(); wait_copies<0>(); }} b_ptr[threadIdx.x] = s[0];", "is missing|nobody wrote"),
        ("copy_async<16>(b_ptr, a_ptr, 16);", "no shared memory"),
        ("__shared__ float s[8]; copy_async<16>(s + 1, a_ptr, 16);", "not aligned"),
        ("uint r[4]; load_matrices(r, 0, a_ptr);", "no shared memory"),
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


def test_lanes_that_leave_out_a_turn_of_a_loop_stay_with_their_warp(arrays: dict[str, np.ndarray]) -> None:
    """What odd lanes do in the first turn and even ones in the second are two requests, of the same sectors."""
    body = "for (int i = 0; i < 2; ++i) { if ((threadIdx.x + i) % 2) { b_ptr[threadIdx.x] = a_ptr[threadIdx.x]; } }"
    counts = emulate(written(body, 32), arrays).counts
    assert (counts.load_bytes, counts.load_sectors, counts.store_sectors) == (128, 8, 8)


def test_copies_bring_bytes_or_zeros_once_they_are_waited_for(arrays: dict[str, np.ndarray]) -> None:
    body = (
        "__shared__ float s[256]; const int t = threadIdx.x; "
        "copy_async<16>(s + t * 4, a_ptr + t * 4, t % 2 ? 16 : 0); commit_copies(); wait_copies<0>(); "
        "for (int i = 0; i < 4; ++i) b_ptr[t * 4 + i] = s[t * 4 + i];"
    )
    done = emulate(written(body), arrays)
    expected = np.where(np.arange(256) // 4 % 2, arrays["a"][:256], 0)
    np.testing.assert_array_equal(done.arrays["b"][:256], expected)


def test_a_copy_of_fewer_bytes_reads_no_others_and_fills_with_zeros(arrays: dict[str, np.ndarray]) -> None:
    body = (
        "__shared__ float s[4]; const int t = threadIdx.x; if (!t) copy_async<16>(s, a_ptr + 8, 12); "
        "commit_copies(); wait_copies<0>(); __syncthreads(); if (t < 4) b_ptr[t] = s[t];"
    )
    done = emulate(written(body), arrays)
    np.testing.assert_array_equal(done.arrays["b"][:4], [*arrays["a"][8:11], 0])
    assert done.counts.load_bytes == 12


@pytest.mark.parametrize("function", ["load_matrices", "load_transposed"])
def test_matrices_come_as_the_documentation_of_ptx_says(arrays: dict[str, np.ndarray], function: str) -> None:
    """Lane l has of each matrix the numbers l % 4 * 2 and the next of row l / 4, or of column l / 4."""
    body = (
        "__shared__ float s[128]; const int t = threadIdx.x; uint r[4]; "
        "for (int i = 0; i < 4; ++i) s[t * 4 + i] = a_ptr[t * 4 + i]; __syncthreads(); "
        f"{function}(r, 0, s + t * 4); for (int i = 0; i < 4; ++i) b_ptr[t * 4 + i] = __int_as_float(r[i]);"
    )
    halves = np.arange(256, dtype=np.uint16)
    given = {**arrays, "a": np.concatenate([halves.view(np.float32), arrays["a"][128:]])}
    brought = emulate(written(body, 32), given).arrays["b"][:128].view(np.uint16).reshape(32, 4, 2)
    matrices = halves.reshape(4, 8, 8)
    for lane in range(32):
        row, pair = lane // 4, lane % 4 * 2 + np.arange(2)
        expected = matrices[:, row, pair] if function == "load_matrices" else matrices[:, pair, row]
        np.testing.assert_array_equal(brought[lane], expected)


@pytest.mark.parametrize(("kind", "dtype", "depth"), [("float16", np.float16, 16), ("tfloat32", np.float32, 8)])
def test_products_are_of_the_fragments_that_the_documentation_of_ptx_names(
    arrays: dict[str, np.ndarray], kind: str, dtype: type, depth: int
) -> None:
    """Lane l has of the left one in register r the word l % 4 + 4 (r / 2) of row l / 4 + 8 (r % 2), of the right one,
    turned, the word l % 4 + 4 r of row l / 4, and the sum of row l / 4 + 8 (r / 2) and column l % 4 * 2 + r % 2: PTX's
    tables, and TVM's of "mma.sync"."""
    random = np.random.default_rng(2228)
    left = random.integers(-4, 5, (16, depth)).astype(dtype)
    right = random.integers(-4, 5, (8, depth)).astype(dtype)
    body = (
        "const int l = threadIdx.x; uint a[4], b[2]; float d[4] = {0, 0, 0, 0}; const uint* w = (const uint*)a_ptr; "
        "for (int r = 0; r < 4; ++r) a[r] = w[(l / 4 + 8 * (r % 2)) * 8 + l % 4 + 4 * (r / 2)]; "
        "for (int r = 0; r < 2; ++r) b[r] = w[128 + l / 4 * 8 + l % 4 + 4 * r]; "
        f"multiply_{kind}(d, 0, a, 0, b, 0); "
        "for (int r = 0; r < 4; ++r) b_ptr[(l / 4 + 8 * (r / 2)) * 8 + l % 4 * 2 + r % 2] = d[r];"
    )
    words = np.concatenate([left.reshape(-1), right.reshape(-1)]).view(np.float32)
    given = {**arrays, "a": np.concatenate([words, np.zeros(1024 - words.size, np.float32)])}
    done = emulate(written(body, 32), given)
    assert done.counts.products == 32
    np.testing.assert_array_equal(done.arrays["b"][:128].reshape(16, 8), left.astype(np.float64) @ right.T)
