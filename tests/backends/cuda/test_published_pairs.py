"""The estimates rank pairs of kernels as they were measured: published figures in milliseconds, with their sources.

Only the order is compared. The kernels that were measured are others than ours, with the same tiles or the same cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from backends.cuda.devices import A100, H100, CudaDevice
from backends.cuda.kernels.attention.plan import choose as choose_attention
from backends.cuda.kernels.attention.plan import estimate as estimate_attention
from backends.cuda.kernels.attention.plan import estimate_apart
from backends.cuda.kernels.attention.read import read_attention
from backends.cuda.kernels.matmul.choose import estimate
from backends.cuda.kernels.matmul.plan import Plan, TileShape, cores_of
from tests.backends.cpu.kernels.memory_bound import prim_func
from tests.backends.cuda.test_attention_kernels import attention
from tests.backends.cuda.test_matmul_choice import chosen, product_of

FLASH = "Dao et al. 2022, FlashAttention (arXiv 2205.14135), table 18: A100, float16, 16 x 8 heads of 64 numbers"
TILES = (
    "SGLang documentation, Speculative Decoding (run of 2026-02-08), EAGLE-2 with torch.compile: what TorchInductor "
    "measured of Triton's kernels in float16; no A100, as 128 x 32000 x 4096 read 2.6 TB/s"
)
TF32 = "PyTorch documentation, CUDA semantics, TensorFloat-32: GA100, 10240 x 10240 x 10240"


@dataclass(frozen=True)
class Attention:
    """Of so many queries and keys, in one kernel or in several; of the longest 16 heads instead of 128 on both sides,
    for no product here makes more scores than an int32 counts."""

    length: int
    together: bool

    def seconds(self) -> float:
        heads = 128 if self.length < 4096 else 16
        func = prim_func(attention(), [np.zeros((heads, self.length, 64), "float16")] * 3)
        region = read_attention(func)
        plan = choose_attention(region, cores_of(region.scores), A100)
        seconds = estimate_attention(plan, A100) if self.together else estimate_apart(plan, A100)
        assert seconds is not None
        return seconds


@dataclass(frozen=True)
class Product:
    """Rows, columns and depth of a product, and the tile: rows, columns, depth, stages, and those of a warp."""

    sizes: tuple[int, int, int]
    tile: tuple[int, int, int, int, int, int]
    device: CudaDevice = H100

    def seconds(self) -> float:
        rows, columns, depth, stages, warp_rows, warp_columns = self.tile
        product = product_of(*self.sizes)
        plan = Plan(product, cores_of(product), TileShape(rows, columns, depth, warp_rows, warp_columns, stages))
        assert not plan.why_not()
        seconds = estimate(plan, self.device)
        assert seconds is not None
        return seconds


@dataclass(frozen=True)
class Rounded:
    """A product of float32 at the point that is chosen for an A100."""

    size: int
    tfloat32: bool

    def seconds(self) -> float:
        product = product_of(self.size, self.size, self.size, "float32")
        seconds = estimate(chosen(product, tfloat32=self.tfloat32), A100)
        assert seconds is not None
        return seconds


_WIDE, _SQUARE, _DEEP, _WIDEST = (128, 22016, 4096), (128, 4096, 4096), (128, 4096, 11008), (128, 32000, 4096)
_64_BY_64, _64_BY_128 = (64, 64, 128, 5, 32, 32), (64, 128, 128, 4, 32, 64)
_64_BY_32, _128_BY_128 = (64, 32, 128, 5, 32, 16), (128, 128, 64, 5, 64, 32)
_64_BY_64_OF_3, _64_BY_128_OF_3 = (64, 64, 64, 3, 32, 16), (64, 128, 64, 3, 32, 64)
_128_BY_128_OF_3 = (128, 128, 64, 3, 64, 64)

PAIRS = [
    (Attention(128, True), 0.08, Attention(128, False), 0.21, FLASH),
    (Attention(256, True), 0.09, Attention(256, False), 0.22, FLASH),
    (Attention(512, True), 0.18, Attention(512, False), 0.43, FLASH),
    (Attention(1024, True), 0.68, Attention(1024, False), 1.27, FLASH),
    (Attention(2048, True), 2.40, Attention(2048, False), 4.32, FLASH),
    (Attention(4096, True), 8.42, Attention(4096, False), 16.47, FLASH),
    (Attention(8192, True), 33.54, Attention(8192, False), 67.77, FLASH),
    (Attention(512, False), 0.43, Attention(1024, True), 0.68, FLASH),
    (Attention(1024, False), 1.27, Attention(2048, True), 2.40, FLASH),
    (Rounded(10240, True), 16, Rounded(10240, False), 110, TF32),
    (Product(_SQUARE, _64_BY_64), 0.0234, Product(_SQUARE, _64_BY_128), 0.0262, TILES),
    (Product(_SQUARE, _64_BY_64), 0.0234, Product(_SQUARE, _128_BY_128), 0.0312, TILES),
    (Product(_SQUARE, _64_BY_128), 0.0262, Product(_SQUARE, _128_BY_128), 0.0312, TILES),
    (Product(_SQUARE, _64_BY_64), 0.0234, Product(_SQUARE, _128_BY_128_OF_3), 0.0382, TILES),
    (Product(_DEEP, _64_BY_64), 0.0450, Product(_DEEP, _64_BY_128), 0.0559, TILES),
    (Product(_DEEP, _64_BY_128), 0.0559, Product(_DEEP, _128_BY_128), 0.0631, TILES),
    (Product(_DEEP, _64_BY_64), 0.0450, Product(_DEEP, _64_BY_32), 0.0633, TILES),
    (Product(_WIDE, _64_BY_128_OF_3), 0.0755, Product(_WIDE, _64_BY_64_OF_3), 0.0931, TILES),
    (Product(_WIDE, _128_BY_128_OF_3), 0.0784, Product(_WIDE, _64_BY_64_OF_3), 0.0931, TILES),
    (Product(_WIDEST, _128_BY_128_OF_3), 0.1026, Product(_WIDEST, _64_BY_64_OF_3), 0.1166, TILES),
]  # fmt: skip


@cache
def estimated(kernel: Attention | Product | Rounded) -> float:
    return kernel.seconds()


@pytest.mark.parametrize(("faster", "faster_ms", "slower", "slower_ms", "source"), PAIRS, ids=str)
def test_the_estimate_ranks_a_pair_as_it_was_measured(
    faster: Attention | Product | Rounded,
    faster_ms: float,
    slower: Attention | Product | Rounded,
    slower_ms: float,
    source: str,
) -> None:
    assert faster_ms < slower_ms, source
    assert estimated(faster) < estimated(slower), source
