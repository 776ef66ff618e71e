"""What is known of a kernel without running it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from backends.sized_work import SizedWork
from fusion.extents import Sizes

UNSCHEDULED = "unscheduled"
"""In the place of a template's name, that of a kernel that none took."""


@dataclass(frozen=True)
class KernelInfo:
    """One kernel of a compiled module.

    Attributes:
        name: Symbol of its PrimFunc.
        ops: Operators it computes, in order.
        work: What its complex operators are: "matmul", "convolution", or "other" where it has none.
        template: The schedule that made it.
        tile: The tile that schedule chose, as text.
        flops: Floating-point operations of one call; where a shape is symbolic, at typical sizes.
        bytes: Bytes it must at least read and write in one call; where a shape is symbolic, at typical sizes.
        written: Those of `bytes` that it writes.
        cycles: What its template estimates the slowest thread to take; 0 where the template has no estimate.
        note: Which better templates did not take it, and why.
        estimate_us: The least time of a call on a machine of the target's kind, in microseconds, without measuring.
        sized: What it does at any sizes, where a shape is symbolic; None where that is not known.
    """

    name: str
    ops: tuple[str, ...]
    work: str
    template: str
    tile: str
    flops: int
    bytes: int
    written: int = 0
    cycles: float = 0.0
    note: str = ""
    estimate_us: float = 0.0
    sized: SizedWork | None = None

    @property
    def read(self) -> int:
        """Bytes that one call must at least read."""
        return self.bytes - self.written

    def at(self, sizes: Sizes) -> KernelInfo:
        """Return it with the operations and bytes at these sizes; the estimate stays that at typical ones."""
        if self.sized is None:
            return self
        read, written = (self.sized.bytes_at(sizes, written=each) for each in (False, True))
        return replace(self, flops=self.sized.flops_at(sizes), bytes=read + written, written=written)
