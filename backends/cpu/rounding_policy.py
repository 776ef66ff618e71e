"""Where operands in bfloat16 are faster on a CPU that multiplies pairs of them in one instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax

from backends.cpu.kernels.batch_matmul.lower import pairs_rows
from backends.cpu.kernels.conv2d.plan import prefers_bfloat16
from backends.cpu.machine import Machine


@dataclass(frozen=True)
class CpuRounding:
    """A `RoundingPolicy`."""

    machine: Machine
    threads: int

    def takes_batches(self, right: Sequence[int]) -> bool:
        """Return whether the rows of the right operand fill vectors."""
        return pairs_rows(right)

    def takes_convolution(self, call: relax.Call) -> bool:
        """Return whether no form in float32, as Winograd's, is estimated to be the faster one."""
        return prefers_bfloat16(call, self.machine, self.threads)

    def stays_near(self, size: int) -> bool:
        """Return whether L2 holds it."""
        return size <= self.machine.l2_bytes
