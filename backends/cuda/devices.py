"""What CUDA devices can do at most: their figures in one table, and what these allow a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backends.machine_limits import Floor

WARP = 32
"""Threads of a warp, its lanes."""
_REGISTER_UNIT = 256
"""Registers are given to a warp in multiples of so many: CUDA occupancy calculator, capabilities 5.0 to 9.0."""
RESERVED_SHARED = 1024
"""Bytes of shared memory that the system takes for each block: CUDA C++ programming guide, "Compute capability 8.x"."""
STATIC_SHARED = 48 << 10
"""Bytes of shared memory that a block has without its function's being asked for more: CUDA C++ programming guide,
"Technical specifications"."""
REGISTERS = 65536
"""Of an SM, of 32 bits, from capability 5.0 on: CUDA C++ programming guide, "Technical specifications"."""


@dataclass(frozen=True)
class CudaDevice:
    """Figures of one device.

    Attributes:
        sms: Streaming multiprocessors.
        threads: That an SM holds at once, at most; so for `blocks`, `registers` (of 32 bits) and `shared_bytes`.
        block_shared_bytes: Of one block, at most.
        l2_bytes: Of the whole device.
        gbs: Of its memory, in 1e9 bytes per second.
        float32_units: Of an SM, each of which does one multiply-add a cycle.
        l2_cycle_bytes: That all SMs together read of the L2 cache in one cycle.
        float32_gflops: Without tensor cores, in 1e9 operations per second; a multiply-add is two.
        float16_gflops: Of tensor cores, dense, sums in float32; the same for bfloat16.
        tfloat32_gflops: Of tensor cores, dense.
        source: Where the figures are published.
        schedulers: Of an SM, each with a tensor core of its own: NVIDIA A100 whitepaper, "A100 SM architecture".
        score_operations: What a score of an attention takes of the float32 units (scale, maximum, exponential, sum,
            conversion) beside the products: with it values of 128 numbers reach the 73% of an A100's rate that
            FlashAttention-2 publishes (Dao 2023, abstract).
        kernel_s: What one kernel more takes, in seconds: assumed, not measured.
        memory_bytes: Of its memory; 80 GB in both data sheets.
        mma_share: Of the tensor cores' rate, what `mma` reaches, the instruction of our kernels. On an H100 that is
            62.9% in the mean, where `wgmma` reaches nearly all (Luo et al. 2024, arXiv 2402.13499).
    """

    name: str
    arch: str
    sms: int
    gbs: float
    l2_bytes: int
    shared_bytes: int
    block_shared_bytes: int
    float32_units: int
    l2_cycle_bytes: int
    float32_gflops: float
    float16_gflops: float
    tfloat32_gflops: float
    source: str
    threads: int = 2048
    blocks: int = 32
    registers: int = REGISTERS
    schedulers: int = 4
    score_operations: int = 12
    kernel_s: float = 2e-6
    memory_bytes: int = 80 * 10**9
    mma_share: float = 1.0

    @property
    def clock_hz(self) -> float:
        """Cycles per second at which the figures hold."""
        return self.float32_gflops * 1e9 / (2 * self.float32_units * self.sms)

    @property
    def shared_gbs(self) -> float:
        """Of one SM, between shared memory and registers, in 1e9 bytes per second: 32 banks of 4 bytes a cycle."""
        return 128 * self.clock_hz / 1e9

    @property
    def l2_gbs(self) -> float:
        """What one SM reads of the L2 cache while all do, in 1e9 bytes per second."""
        return self.l2_cycle_bytes * self.clock_hz / self.sms / 1e9

    def blocks_at_once(self, threads: int, registers: int, shared_bytes: int = 0) -> int:
        """Return how many blocks of so many threads an SM holds at once; 0 where not even one fits.

        Args:
            registers: Of each thread.
            shared_bytes: Of each block.
        """
        if shared_bytes > self.block_shared_bytes:
            return 0
        warps = -(-threads // WARP)
        of_warp = -(-registers * WARP // _REGISTER_UNIT) * _REGISTER_UNIT
        by_registers = self.registers // of_warp // warps if of_warp else self.blocks
        by_shared = self.shared_bytes // (shared_bytes + RESERVED_SHARED)
        return min(self.blocks, self.threads // (warps * WARP), by_registers, by_shared)

    def occupancy(self, threads: int, registers: int, shared_bytes: int = 0) -> float:
        """Return the share of an SM's threads that such blocks fill: see `blocks_at_once`."""
        return self.blocks_at_once(threads, registers, shared_bytes) * (-(-threads // WARP)) * WARP / self.threads

    def gflops(self, operands: str) -> float:
        """Return the rate at which operands of this dtype are multiplied: those of tensor cores, or "" for float32's
        own units."""
        rates = {"float16": self.float16_gflops, "bfloat16": self.float16_gflops, "tfloat32": self.tfloat32_gflops}
        return rates.get(operands, self.float32_gflops)

    def floor(self, flops: float, moved_bytes: int, gflops: float | None = None) -> Floor:
        """Return the least time of a kernel that does `flops` operations and moves so many bytes of memory: the roof of
        the roofline model (Williams, Waterman, Patterson 2009).

        Args:
            gflops: What the operations are done at; None for those of float32 without tensor cores.
        """
        computing_s = flops / ((self.float32_gflops if gflops is None else gflops) * 1e9)
        moving_s = moved_bytes / (self.gbs * 1e9)
        return Floor(computing_s, "compute") if computing_s >= moving_s else Floor(moving_s, "memory")


A100 = CudaDevice(
    name="A100 SXM 80 GB", arch="sm_80", sms=108, gbs=2039, l2_bytes=40 << 20,
    shared_bytes=164 << 10, block_shared_bytes=163 << 10,
    float32_units=64, l2_cycle_bytes=5120,
    float32_gflops=19_500, float16_gflops=312_000, tfloat32_gflops=156_000,
    source="NVIDIA A100 data sheet and whitepaper (L2); "
    "CUDA C++ programming guide, \"Technical specifications per compute capability\"",
)  # fmt: skip
H100 = CudaDevice(
    name="H100 SXM 80 GB", arch="sm_90", sms=132, gbs=3350, l2_bytes=50 << 20,
    shared_bytes=228 << 10, block_shared_bytes=227 << 10,
    float32_units=128, l2_cycle_bytes=5120,
    float32_gflops=67_000, float16_gflops=989_500, tfloat32_gflops=494_500, mma_share=0.629,
    source="NVIDIA H100 data sheet (half of its figures with sparsity); CUDA C++ programming guide, as for A100; "
    "L2 is not published, A100's stands in",
)  # fmt: skip
DEVICES: Mapping[str, CudaDevice] = {device.arch: device for device in (A100, H100)}
"""By the architecture for which their kernels are compiled."""
