"""What is known of a kernel without running it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelInfo:
    """One kernel of a compiled module.

    Attributes:
        name: Symbol of its PrimFunc.
        ops: Operators it computes, in order.
        work: What its complex operators are: "matmul", "convolution", or "other" where it has none.
        template: The schedule that made it.
        tile: The tile that schedule chose, as text.
        flops: Floating-point operations of one call; 0 where a shape is symbolic.
        bytes: Bytes it must at least read and write in one call; 0 where a shape is symbolic.
        written: Those of `bytes` that it writes.
        cycles: What its template estimates the slowest thread to take; 0 where the template has no estimate.
        note: Which better templates did not take it, and why.
        estimate_us: The least time of a call on a machine of the target's kind, in microseconds, without measuring.
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

    @property
    def read(self) -> int:
        """Bytes that one call must at least read."""
        return self.bytes - self.written
