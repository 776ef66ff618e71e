"""Memory-bound kernels use the sectors that they move, also at sizes that no sector divides: counted on the emulator.

A tensor that ends inside of a sector leaves the rest of it unused: of 49 float16 that is a quarter, of 9,000 nothing.
Tensors have some kilobytes here, as those of models have at least.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from backends.cuda.codegen.device_code import generate_kernels
from backends.cuda.devices import A100
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


CASES: list[tuple[Build, Reference, list[tuple[int, ...]]]] = [
    (lambda b, x: op.nn.softmax(x, -1), softmax_in_float64, [(96, 49)]),
    (lambda b, x: op.nn.softmax(x, -1), softmax_in_float64, [(33, 197)]),
    (lambda b, x: op.nn.softmax(x, -1), softmax_in_float64, [(3, 5001)]),
    (lambda b, x, y, g, e: op.nn.layer_norm(op.add(x, y), g, e, -1), norm_in_float64, [(40, 197)] * 2 + [(197,)] * 2),
    (lambda b, x: op.mean(x, [2, 3]), lambda x: x.mean((2, 3)), [(2, 64, 7, 7)]),
    (lambda b, x: op.max(x, -1), lambda x: x.max(-1), [(64, 1000)]),
    (lambda b, x: op.sum(x, -1), lambda x: x.sum(-1), [(1, 50_000)]),
    (lambda b, x: op.mean(x, [1, 2]), lambda x: x.mean((1, 2)), [(1, 33, 32, 8)]),
    (padded_pool, pool_in_float64, [(1, 9, 9, 64)]),
    (lambda b, x: op.nn.relu(x), lambda x: np.maximum(x, 0), [(17, 147)]),
    (lambda b, x: op.permute_dims(x, [0, 2, 1]), lambda x: x.transpose(0, 2, 1), [(2, 64, 96)]),
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
