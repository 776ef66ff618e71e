"""What passes of the core ask of a CUDA device: the order of tensors in memory, and the precision of operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax

from backends.cuda.devices import CudaDevice
from backends.cuda.lowerings.product import why_not_multiplied

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class CudaLayouts:
    """A `LayoutPolicy`: channels are last, where a product's depth is contiguous, unless transposes cost more."""

    device: CudaDevice

    def move_cycles(self, elements: int) -> float:
        """Return what a kernel takes that reads and writes so many float32 elements."""
        moved = self.device.floor(0, 2 * _FLOAT_BYTES * elements).seconds
        return (self.device.kernel_s + moved) * self.device.clock_hz

    def padding_cycles(self, rows: int, columns: int) -> float:
        """Return nothing: no operand is padded in memory."""
        return 0.0

    def why_not_channels_last(self, call: relax.Call, weights: relax.Expr) -> str:
        """Return why its operands are none that products take; whether weights are constants does not matter to
        them."""
        return why_not_multiplied(call)

    def has_row_major_kernel(self, call: relax.Call) -> bool:
        """Return that none has one: neighbours of a window's threads are channels."""
        return False


@dataclass(frozen=True)
class CudaRounding:
    """A `RoundingPolicy`: whatever tensor cores multiply is faster so than in float32."""

    device: CudaDevice

    def takes_batches(self, right: Sequence[int]) -> bool:
        """Return that it may be bfloat16."""
        return True

    def takes_convolution(self, call: relax.Call) -> bool:
        """Return whether it is one product, and not groups of small ones."""
        return int(call.attrs.groups) == 1

    def why_not_narrow(self, call: relax.Call) -> str:
        """Return that it may stay."""
        return ""

    def stays_near(self, size: int) -> bool:
        """Return whether it is in the L2 cache, with as much beside it."""
        return 2 * size <= self.device.l2_bytes
